"""What administrators install beside the program (contrib): each file by the program that reads it, and by the manual."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.kits.backend_kit import missing

from lodesman.server.main.__main__ import _LOST
from lodesman.wire import calls


@pytest.fixture(scope="module")
def contrib(root: Path) -> Path:
    return root / "contrib"


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")


def run(*command: object, **more: Any) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **more)


def program(name: str, package: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return found or missing(package, f"needs {name} (apt-get install {package})")


def unit(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path, encoding="utf-8")
    return {name: dict(section) for name, section in parser.items()}


def test_the_page_walks_through_every_file(root, contrib, page):
    files = {path.relative_to(root).as_posix() for path in contrib.rglob("*") if path.is_file()}
    named = set(re.findall(r"contrib/[\w./-]*\w", page)) - {"contrib/README.md"}
    assert named == files - {"contrib/README.md"}
    table = (contrib / "README.md").read_text(encoding="utf-8")
    assert {f"contrib/{name}" for name in re.findall(r"\]\(([^.)][^)]*)\)", table)} == named


def test_the_unit_starts_what_the_page_installs(contrib, page):
    service = unit(contrib / "systemd" / "lodesman.service")["Service"]
    lode, *words = service["ExecStart"].split()
    assert f"python3 -m venv {Path(lode).parents[1]}\n" in page
    assert words == ["server", "--config", "/etc/lodesman/lode.toml"]
    assert service["RestartPreventExitStatus"] == str(_LOST)
    for name in (
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProtectProc",
        "PrivateUsers",
        "RestrictNamespaces",
    ):
        assert name not in service, "local jobs would not be kept from the server"


def told_by_systemd(place: Path) -> list[str]:
    """What it says of files in this folder; it may say more of other units of the machine."""
    done = run(program("systemd-analyze", "systemd"), "verify", "--man=no", place / "lodesman.service")
    return [
        line
        for line in done.stderr.splitlines()
        if str(place) in line or "lodesman" in line.partition(":")[0]
    ]


def test_systemd_takes_the_unit_and_its_drop_in(contrib, tmp_path):
    shutil.copytree(contrib / "systemd", tmp_path, dirs_exist_ok=True)
    service = tmp_path / "lodesman.service"
    text = service.read_text(encoding="utf-8").replace("/opt/lodesman/bin/lode", "/bin/true")
    service.write_text(text, encoding="utf-8")
    assert told_by_systemd(tmp_path) == []
    service.write_text(text.replace("OOMPolicy=", "OOMRule="), encoding="utf-8")
    assert "OOMRule" in "".join(told_by_systemd(tmp_path))


def test_systemd_makes_the_account_and_its_folders(contrib, tmp_path):
    if os.geteuid():
        pytest.skip("only root gives folders to accounts")
    for kind in ("sysusers", "tmpfiles"):
        place = tmp_path / "etc" / f"{kind}.d"
        place.mkdir(parents=True)
        shutil.copy(contrib / "systemd" / f"lodesman.{kind}.conf", place / "lodesman.conf")
    for name, words in (("systemd-sysusers", []), ("systemd-tmpfiles", ["--create"])):
        done = run(program(name, "systemd"), f"--root={tmp_path}", *words, "lodesman.conf")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    account = (tmp_path / "etc" / "passwd").read_text(encoding="utf-8").split(":")
    assert (account[0], account[5]) == ("lodesman", "/var/lib/lodesman")
    uid, gid = int(account[2]), int(account[3])
    for name, owner in (("etc/lodesman", 0), ("var/lib/lodesman", uid), ("var/log/lodesman", 0)):
        found = (tmp_path / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (owner, gid, 0o750), name


def test_logrotate_empties_the_log_in_its_place(contrib, tmp_path):
    logrotate = program("logrotate", "logrotate")
    log, rules = tmp_path / "server.log", tmp_path / "rules"
    told = unit(contrib / "systemd" / "lodesman.service.d" / "log-file.conf")["Service"]["StandardError"]
    text = (contrib / "logrotate" / "lodesman").read_text(encoding="utf-8")
    assert told.removeprefix("append:") in text
    rules.write_text(text.replace("/var/log/lodesman/server.log", str(log)), encoding="utf-8")
    rules.chmod(0o600)
    tmp_path.chmod(0o750)
    with log.open("a") as server:
        server.write("one\n")
        server.flush()
        done = run(logrotate, "--force", "--state", tmp_path / "state", rules)
        assert (done.returncode, done.stderr) == (0, "")
        server.write("two\n")
    assert log.read_text(encoding="utf-8") == "two\n"
    assert (tmp_path / "server.log.1").read_text(encoding="utf-8") == "one\n"


def test_prometheus_scrapes_what_the_server_has(contrib):
    text = (contrib / "prometheus" / "lodesman.yml").read_text(encoding="utf-8")
    (job,) = import_module("yaml").safe_load(text)["scrape_configs"]
    assert set(job) == {"job_name", "metrics_path", "scheme", "authorization", "static_configs"}
    assert job["metrics_path"] == calls.METRICS.path
    assert f"--scope {calls.METRICS.who} " in text
    assert job["job_name"] == "lodesman"  # as the alerts have it
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "/etc/prometheus/lodesman.token"}
    assert job["static_configs"] == [{"targets": ["127.0.0.1:7777"]}]


INSTRUCTIONS = {
    "ARG",
    "FROM",
    "COPY",
    "RUN",
    "USER",
    "WORKDIR",
    "VOLUME",
    "EXPOSE",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
}


def test_the_container_file_runs_the_server_without_rights_of_root(contrib):
    text = (contrib / "container" / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    steps = [tuple(line.split(maxsplit=1)) for line in lines]
    names = [name for name, _ in steps]
    assert set(names) == INSTRUCTIONS
    assert [name for name in INSTRUCTIONS - {"RUN"} if names.count(name) != 1] == []
    order = ["ARG", "FROM", "COPY", "RUN", "USER", "WORKDIR", "VOLUME"]
    assert names[: len(order)] == order
    words = dict(steps)
    assert words["USER"] == "lodesman"
    assert words["COPY"].split() == ["lodesman-*.requirements.txt", "lodesman-*.whl", "/opt/lodesman/"]
    assert "--require-hashes --no-deps --only-binary :all:" in words["RUN"]
    assert (words["ENTRYPOINT"], words["CMD"]) == ('["lode"]', '["server"]')
