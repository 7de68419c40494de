"""./demo and ./check set themselves up: in a copy of the scripts, with stand-ins for Python and apt-get.

The real thing, in a bare Debian, is scripts/prove-bare-debian.sh.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

TOOLS = "sh dirname cat cksum date mktemp tail grep rm mkdir cp chmod touch tr sed".split()

# Answers as an interpreter would; `-m venv` copies itself; all else is noted, one call a line.
PYTHON = """#!/bin/sh
case "$*" in
    *"import sys, ensurepip"*) exit 0 ;;
    -V) echo "Python 3.11.2" ;;
    *"print(sys.version)"*) echo "3.11.2" ;;
    "-m venv "*) mkdir -p "$3/bin" "$3/lib"; cp "$0" "$3/bin/python" ;;
    *sysconfig*) echo "${0%/bin/python}/lib" ;;
    *) for word in "$@"; do printf '<%s>' "$word"; done >>"$CALLS"; echo >>"$CALLS"
       case "$*" in *" pip "*) [ ! -f "$CALLS.broken" ] || { echo "no such wheel"; exit 7; } ;; esac
       [ "$1" != "${FAILS:-}" ] || exit 5 ;;
esac
"""
APT = """#!/bin/sh
printf 'apt-get %s\\n' "$*" >>"$CALLS"
case "$*" in *install*) cp "$STAND_IN" "${0%/*}/python3" ;; esac
"""
TABLE = "#!/bin/sh\necho {uid}\n"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A checkout in a folder with spaces, and a PATH of its own."""

    checkout: Path
    tools: Path
    calls: Path

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        fixed = {
            "PATH": str(self.tools),
            "CALLS": str(self.calls),
            "STAND_IN": str(self.tools / "stand-in"),
            "TMPDIR": str(self.calls.parent),
        }
        argv = [str(self.checkout / command[0]), *command[1:]]
        return subprocess.run(
            argv, env=fixed | environment, cwd="/", capture_output=True, text=True, timeout=120, check=False
        )

    def noted(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []

    def has_python(self) -> None:
        shutil.copy(self.tools / "stand-in", self.tools / "python3")

    def lock(self, name: str) -> Path:
        return self.checkout / "requirements" / f"{name}.txt"


def write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Machine:
    checkout = tmp_path / "a check out"
    for folder in ("requirements", "scripts"):
        shutil.copytree(root / folder, checkout / folder)
    for name in ("demo", "check"):
        shutil.copy(root / name, checkout / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    write_program(tools / "id", TABLE.format(uid=0))
    write_program(tools / "apt-get", APT)
    write_program(tools / "stand-in", PYTHON)
    return Machine(checkout=checkout, tools=tools, calls=tmp_path / "calls")


def test_without_python_and_without_root_one_line_says_what_to_do(machine):
    write_program(machine.tools / "id", TABLE.format(uid=1000))
    done = machine.run("demo")
    assert done.returncode == 2
    assert done.stderr.startswith("apt-get install -y python3-venv")
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
    assert machine.noted() == []
    assert not (machine.checkout / ".venv").exists()


def test_root_gets_python_from_the_packages_of_the_system(machine):
    done = machine.run("demo")
    assert done.returncode == 0, done.stderr
    update, install, *_ = machine.noted()
    assert update == "apt-get -q update"
    assert install.endswith("install --no-install-recommends python3-venv")
    steps = [line.partition(" ... ")[0] for line in done.stderr.splitlines()]
    assert steps[0] == "Installing python3-venv from Debian's packages"
    assert steps[1] == "Creating .venv with Python 3.11.2"
    assert re.fullmatch(r"Installing the locked packages \(\d+\)", steps[2])
    assert len(steps) == 3


def test_packages_are_installed_by_hash_and_only_from_wheels(machine):
    machine.has_python()
    machine.run("demo")
    (install,) = (line for line in machine.noted() if "<pip>" in line)
    assert "<--require-hashes>" in install
    assert "<--only-binary><:all:>" in install
    assert install.endswith(f"<-r><{machine.lock('runtime')}>")
    assert "index" not in install


def test_arguments_and_the_exit_code_pass_through(machine):
    machine.has_python()
    assert machine.run("demo", "--jobs", "two words", "*").returncode == 0
    assert machine.noted()[-1] == "<-P><-m><examples.demo><--jobs><two words><*>"
    assert machine.run("demo", FAILS="-P").returncode == 5


def test_the_second_run_installs_nothing_and_says_nothing(machine):
    machine.has_python()
    machine.run("demo")
    again = machine.run("demo")
    assert again.stderr == ""
    assert sum("<pip>" in line for line in machine.noted()) == 1


def test_a_changed_lock_installs_anew(machine):
    machine.has_python()
    machine.run("demo")
    with machine.lock("runtime").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    assert "Creating .venv" in machine.run("demo").stderr
    assert sum("<pip>" in line for line in machine.noted()) == 2


def test_the_developers_set_comes_on_top_and_serves_both(machine):
    machine.has_python()
    machine.run("demo")
    first = machine.run("check", "--fast")
    assert "Creating" not in first.stderr
    assert any(line.endswith(f"<-r><{machine.lock('dev')}>") for line in machine.noted())
    assert machine.run("demo").stderr == ""


def test_a_failed_installation_is_shown_and_not_taken_for_done(machine):
    machine.has_python()
    broken = machine.calls.with_name("calls.broken")
    broken.touch()
    done = machine.run("demo")
    assert done.returncode == 1
    assert "no such wheel" in done.stderr
    broken.unlink()
    assert "Installing the locked packages" in machine.run("demo").stderr


def test_a_system_with_an_old_python_gets_a_message(machine):
    write_program(machine.tools / "apt-get", "#!/bin/sh\nexit 0\n")
    done = machine.run("demo")
    assert done.returncode == 2
    assert "Python 3.11 or newer is needed" in done.stderr


def test_check_hands_its_arguments_on(machine):
    machine.has_python()
    assert machine.run("check", "--local", "--since", "HEAD~3").returncode == 0
    assert machine.noted()[-1] == "<-m><scripts.run_check><--local><--since><HEAD~3>"
    assert machine.run("check", FAILS="-m").returncode == 5


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--nonsense", 1)])
def test_check_knows_its_arguments(machine, argument, code):
    done = machine.run("check", argument)
    assert done.returncode == code
    assert "--fast" in done.stdout or "--nonsense" in done.stderr
    assert machine.noted() == []


def test_the_scripts_are_programs_and_ci_runs_the_same_check(root):
    scripts = ("demo", "check", "scripts/prove-bare-debian.sh", "scripts/release.sh", "scripts/repeat.sh")
    for name in (*scripts, ".ci/run"):
        assert os.access(root / name, os.X_OK), name
    shell = shutil.which("dash") or "sh"
    for name in (*scripts, "scripts/setup.sh"):
        subprocess.run([shell, "-n", str(root / name)], check=True, timeout=60)
    commands = (root / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"exec timeout [^;&|]* \./check </dev/null", commands[-1])


def test_the_readme_begins_with_the_two_commands(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    assert [line.split()[0] for line in blocks[0].splitlines() if line.strip()] == ["./demo", "./check"]


@pytest.mark.slow
def test_services_that_start_at_once_have_ports_of_their_own(root, tmp_path):
    """They are free when they are chosen, and still unused while another service chooses."""
    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
    programs = [
        subprocess.Popen([root / "tests/services/ports", "16", folder], stdout=subprocess.PIPE, text=True)
        for folder in folders
    ]
    found = [port for program in programs for port in program.communicate()[0].split()]
    assert [program.returncode for program in programs] == [0] * 8
    assert len(found) == len(set(found)) == 128
    book = Path(f"/tmp/lodesman-ports-{os.geteuid()}")
    assert (book / found[0]).read_text() == str(folders[0])
    shutil.rmtree(folders[0])
    subprocess.run([root / "tests/services/ports", "1", folders[1]], check=True, capture_output=True)
    assert not any((book / port).exists() and (book / port).read_text() == str(folders[0]) for port in found)
    for folder in folders[1:]:  # who comes later gets them
        folder.rmdir()


@pytest.mark.slow
def test_services_get_ports_where_few_are_left(root, tmp_path):
    """It asked for ever where more than the machine's few reserved ports were kept."""
    done = subprocess.run(
        [root / "tests/services/ports", "1200", tmp_path], check=True, capture_output=True, timeout=60
    )
    assert len(set(done.stdout.split())) == 1200
    tmp_path.rmdir()
    refused = subprocess.run(
        [root / "tests/services/ports", "70000", tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("ports: only ")
