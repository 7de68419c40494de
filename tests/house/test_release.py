"""scripts/release.sh in a small repository, with stand-ins for Python and what it builds.

The real wheel is in tests/e2e/test_wheel_live.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# Answers as an interpreter would: `-m venv` copies itself, `-m hatchling build` writes files. The rest is noted.
PYTHON = """#!/bin/sh
case "$*" in
    *"import sys, ensurepip"*) exit 0 ;;
    -V) echo "Python 3.11.2" ;;
    *"print(sys.version)"*) echo "3.11.2" ;;
    *sysconfig*) echo "${0%/bin/python}/lib" ;;
    "-m venv "*)
        mkdir -p "$3/bin" "$3/lib"; cp "$0" "$3/bin/python"
        printf '#!/bin/sh\\n[ "$1" != --version ] || echo "$SAID"\\n' >"$3/bin/lode"; chmod 755 "$3/bin/lode" ;;
    "-m hatchling build -d "*)
        echo "build $SOURCE_DATE_EPOCH $PWD $7" >>"$CALLS"
        mkdir -p "$5" "$5/../lodesman-0.1.0"
        case $DIFFERS in "") built= ;; *) built=$PWD ;; esac
        case $7 in
            wheel) ;;
            *) tar --create --sort=name --mtime=@0 --mode=755 --file="$5/lodesman-0.1.0.tar.gz" -C "$5/.." --gzip \\
                lodesman-0.1.0 ;;
        esac
        echo "wheel $built" >"$5/lodesman-0.1.0-py3-none-any.whl" ;;
    *) echo "$* PYTHONPATH=$PYTHONPATH" >>"$CALLS"
       case "$*" in *"${FAILS:-no such words}"*) echo "it went wrong"; exit 7 ;; esac ;;
esac
"""
FILES = ["lodesman-0.1.0-py3-none-any.whl", "lodesman-0.1.0.tar.gz", "lodesman-0.1.0.requirements.txt"]
CHANGES = "# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-11-30\n\n- All.\n"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One commit, and a PATH whose first folder has the stand-in."""

    place: Path
    environ: dict[str, str]

    def git(self, *words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        done = subprocess.run(
            command, cwd=self.place, env=self.environ, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A state")

    def release(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        said = f"lode 0.1.0 (commit {self.git('rev-parse', 'HEAD')[:12]})"
        more = {"SAID": said, "DIFFERS": "", **environ}
        command = [str(self.place / "scripts" / "release.sh"), *words]
        return subprocess.run(
            command,
            cwd="/",
            env=self.environ | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def dist(self) -> list[str]:
        return sorted(path.name for path in self.place.glob("dist/*"))

    @property
    def calls(self) -> list[str]:
        noted = Path(self.environ["CALLS"])
        return noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Repository:
    place, tools = tmp_path / "a check out", tmp_path / "tools"
    shutil.copytree(root / "requirements", place / "requirements")
    (place / "scripts").mkdir()
    for name in ("release.sh", "setup.sh"):
        shutil.copy(root / "scripts" / name, place / "scripts" / name)
    tools.mkdir()
    (tools / "python3").write_text(PYTHON, encoding="utf-8")
    (tools / "python3").chmod(0o755)
    environ = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "TMPDIR": str(tmp_path),
    }
    environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(tmp_path)}
    environ |= {
        f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    found = Repository(place=place, environ=environ)
    found.write(".gitignore", ".venv/\ndist/\n")
    found.write("CHANGELOG.md", CHANGES)
    found.write("src/lodesman/__init__.py", '__version__ = "0.1.0"\n')
    found.git("init", "--quiet")
    found.commit()
    return found


@pytest.mark.slow
def test_a_dry_run_leaves_proven_files_and_no_tag(repository):
    done = repository.release()
    assert done.returncode == 0, done.stderr
    assert repository.dist == sorted([*FILES, "SHA256SUMS"])
    subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=repository.place / "dist", check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert repository.git("tag") == repository.git("status", "--porcelain") == ""
    assert "This was a dry run" in done.stdout
    assert "scripts/release.sh --tag\n" in done.stdout
    assert all(
        re.search(rf"^[0-9a-f]{{64}}  {re.escape(name)}$", done.stdout, re.MULTILINE) for name in FILES
    )
    builds = [line.split(" ", 1)[1] for line in repository.calls if line.startswith("build ")]
    moment = repository.git("log", "-1", "--format=%ct")
    places = [line.removeprefix(f"{moment} ") for line in builds]
    assert len(set(places)) == 3
    assert [place.endswith(" wheel") for place in places] == [False, False, True]
    packages, wheel, demo = repository.calls[-3:]
    assert "--require-hashes --no-deps --only-binary :all: -r" in packages
    assert "--no-index" in wheel
    assert "-P -m examples.demo" in demo
    assert demo.endswith("/one/tree")
    assert list(repository.place.parent.glob("tmp.*")) == []
    assert repository.release("--no-demo").returncode == 0, "once more, over the same files"


@pytest.mark.slow
def test_the_tag_is_asked_for_and_is_made_once(repository):
    done = repository.release("--tag", "--output", str(repository.place / "dist"))
    assert (done.returncode, repository.git("cat-file", "-t", "v0.1.0")) == (0, "tag"), done.stderr
    assert "git push origin v0.1.0" in done.stdout
    again = repository.release("--tag")
    assert (again.returncode, again.stderr.startswith("release: the tag v0.1.0 is there already")) == (
        1,
        True,
    )
    assert repository.release().returncode == 0, "what has its tag may be proven again"
    repository.write("new", "")
    repository.commit()
    assert "v0.1.0 is another commit" in repository.release().stderr


@pytest.mark.slow
def test_what_is_not_proven_is_not_handed_over(repository):
    for environ, words in (
        ({"DIFFERS": "yes"}, "lodesman-0.1.0-py3-none-any.whl is not reproducible"),
        ({"SAID": "lode 0.1.0"}, "lode --version says: lode 0.1.0"),
        ({"FAILS": "-r "}, "it went wrong"),
        ({"FAILS": "--no-index"}, "it went wrong"),
        ({"FAILS": "examples.demo"}, "it went wrong"),
    ):
        done = repository.release("--tag", **environ)
        assert (done.returncode, words in done.stderr) == (1, True), (environ, done.stderr)
        assert (repository.dist, repository.git("tag")) == ([], "")


@pytest.mark.slow
def test_refused_before_anything_is_built(repository):
    place = repository.place
    head = repository.git("rev-parse", "HEAD")
    for name, text, words in (
        ("left", "", "only what is committed is released; not committed is:\n?? left"),
        ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n", 'no section "## 0.1.0 - '),
        ("CHANGELOG.md", CHANGES.replace("d\n", "d\n\n- More.\n", 1), "has changes under Unreleased"),
        ("dist/lodesman-0.0.9.tar.gz", "", "dist/lodesman-0.0.9.tar.gz is no file of this release"),
    ):
        repository.write(name, text)
        if name == "CHANGELOG.md":
            repository.commit()
        done = repository.release("--tag")
        assert (done.returncode, words in done.stderr, done.stdout) == (1, True, ""), (words, done.stderr)
        repository.git("reset", "--quiet", "--hard", head)
        if name != "CHANGELOG.md":
            (place / name).unlink()
    for arguments in (["--push"], ["--output"], ["--tag", "--no-demo"]):
        done = repository.release(*arguments)
        assert (done.returncode, done.stderr.startswith("release: "), done.stdout) == (1, True, "")
    assert repository.calls == []
    assert not (place / ".venv").exists()


def test_its_help_names_every_option_and_says_that_nothing_is_uploaded(root):
    script = root / "scripts" / "release.sh"
    said = subprocess.run([script, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert "Nothing is uploaded." in said
    taken = re.findall(r"^ +(--[\w-]+)\)", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert [option for option in taken if option not in said] == []
    assert len(taken) == 3
