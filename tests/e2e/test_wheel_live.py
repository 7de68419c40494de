"""What is installed from a wheel needs no source tree: a first configuration, a server, a job; and a container's image."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.conftest import PATIENCE, wait_until
from tests.kits.backend_kit import missing

from lodesman import __version__
from lodesman.user.cli.origin import version_text

ROOT = Path(__file__).resolve().parents[2]
SAID = f"lode {version_text(__version__, ROOT / 'src' / 'lodesman')}\n"
HASTE = {"pilots.idle_seconds": 2, "pilots.stop_at_exit": True, "director.PollingTime": 0.5}


def run(*command: object, cwd: Path, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files-of-a-release")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (found,) = folder.iterdir()
    return found


@pytest.fixture
def lode(wheel: Path, tmp_path: Path) -> Path:
    """The command in an environment that has the wheel, and of this one the packages, but not the sources."""
    place = tmp_path / "clean"
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=tmp_path)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "packages-of-the-tests.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n", encoding="utf-8"
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", place / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-index", wheel, cwd=tmp_path)
    return place / "bin" / "lode"


def answers(port: int) -> bool:
    """Without a token it is refused."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/me", timeout=PATIENCE).close()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code == 401
    except OSError:
        return False
    return True


def test_an_installed_wheel_runs_a_server_and_a_job(lode, tmp_path, free_port):
    folder, port = tmp_path / "grid", free_port()
    folder.mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    python = lode.with_name("python")
    where = run(python, "-c", "import lodesman; print(lodesman.__file__)", cwd=folder, environ=environ)
    assert Path(where).is_relative_to(tmp_path)
    assert run(lode, "--version", cwd=folder, environ=environ) == SAID
    assert run(lode, "init", cwd=folder, environ=environ) == "lode.toml\nsites.toml\nhello.jdl\n"
    settings = [
        f"{name}={json.dumps(value)}" for name, value in (HASTE | {"pilots.python": str(python)}).items()
    ]
    words = [word for one in settings for word in ("--set", one)]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [lode, "server", "--port", str(port), *words], cwd=folder, env=environ, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: server.poll() is not None or answers(port), "the server")
        # From another folder, by the note of the server that the account runs.
        assert run(lode, "submit", "--wait", folder / "hello.jdl", cwd=tmp_path, environ=environ) == "1\n"
        assert run(lode, "logs", "1", cwd=tmp_path, environ=environ) == "hello from a pilot\n"
    finally:
        server.send_signal(signal.SIGINT)
        code = server.wait(PATIENCE)
    assert code == 0, (tmp_path / "server.log").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_image_of_a_container_is_built_of_the_files_of_a_release(wheel, tmp_path):
    podman = shutil.which("podman") or missing("podman", "needs podman (apt-get install podman)")
    file = ROOT / "contrib" / "container" / "Containerfile"
    (base,) = re.findall(r"^ARG BASE=(\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    if subprocess.run(
        [podman, "pull", "--quiet", base], capture_output=True, check=False, timeout=600
    ).returncode:
        missing("podman", f"podman cannot fetch {base}")
    shutil.copy(wheel, tmp_path)
    shutil.copy(ROOT / "requirements" / "runtime.txt", tmp_path / f"lodesman-{__version__}.requirements.txt")
    image = f"lodesman-test-{secrets.token_hex(4)}"
    run(podman, "build", "--file", file, "--tag", image, tmp_path, cwd=tmp_path)
    try:
        assert run(podman, "run", "--rm", image, "--version", cwd=tmp_path) == SAID
        assert "lode.toml\n" in run(podman, "run", "--rm", image, "init", cwd=tmp_path)
    finally:
        run(podman, "rmi", "--force", image, cwd=tmp_path)
