"""What is installed: locks that name versions and hashes and no address; a wheel with all its files."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lodesman import __version__
from lodesman.user.cli.origin import source_commit

HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
ADDRESS = re.compile(r"://|^-|--(?:index|extra|find|trusted)", re.MULTILINE)


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    config: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return config


def lock_text(root: Path, name: str) -> str:
    return (root / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def pins(root: Path, name: str) -> dict[str, str]:
    found = (PIN.match(line) for line in lock_text(root, name).splitlines())
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def test_a_lock_has_versions_and_hashes_and_no_address(root, project):
    names = {"runtime", *project["optional-dependencies"]}
    assert {one.stem for one in (root / "requirements").iterdir()} == names, "run scripts/lock.py"
    for name in names:
        text = lock_text(root, name)
        assert ADDRESS.findall(text) == []
        entries = re.split(r"\n(?=[a-z0-9])", text.partition("\n")[2])
        assert len(entries) == len(pins(root, name)) > 0
        assert [entry.splitlines()[0] for entry in entries if not HASH.search(entry)] == []


def test_the_locks_hold_what_the_project_asks_for(root, project):
    runtime = pins(root, "runtime")
    wanted = [(runtime, text) for text in project["dependencies"]]
    for extra, texts in project["optional-dependencies"].items():
        wanted += [(pins(root, extra), text) for text in texts]
    missing = []
    for lock, text in wanted:
        requirement = Requirement(text)
        version = lock.get(canonicalize_name(requirement.name))
        if version is None or version not in requirement.specifier:
            missing.append(f"{text}: {version}")
    assert missing == [], "run scripts/lock.py"


def test_the_developers_set_contains_all_that_users_install(root):
    for name in ("runtime", "functions", "postgres"):
        assert pins(root, name).items() <= pins(root, "dev").items()


def test_what_people_are_told_to_install_is_locked(root):
    """An extra by its name takes whatever an index has, without a hash."""
    files = [*(root / "docs" / "how-to").glob("*.md"), *(root / "src").rglob("*.py"), root / "README.md"]
    loose = [
        path.name for path in files if re.search(r"pip install\W+lodesman", path.read_text(encoding="utf-8"))
    ]
    assert loose == []
    for name in ("functions", "postgres"):
        assert any(f"-r requirements/{name}.txt" in path.read_text(encoding="utf-8") for path in files), name


def test_no_file_for_people_or_machines_names_a_package_host(root):
    """Where packages come from is the matter of the machine that installs."""
    files = [root / name for name in ("demo", "check", ".ci/run", "pyproject.toml")]
    files += [path for path in (root / "scripts").iterdir() if path.is_file()]
    hosts = re.compile(r"index-url *=|pypi\.org|pythonhosted|deb\.debian\.org|files\.|mirror\.\w+\.")
    assert [str(path) for path in files if hosts.search(path.read_text(encoding="utf-8"))] == []


def test_the_changelog_knows_this_version(root):
    """What changed since the newest release stands above it; the first release says what there is, briefly."""
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", changes, re.MULTILINE)
    releases = [
        match for one in headings if (match := re.fullmatch(r"(\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d", one))
    ]
    assert len(releases) == len(headings) - (headings[0] == "Unreleased")
    assert releases[0][1] == __version__
    first = changes.partition(f"## {releases[-1][0]}\n")[2].splitlines()
    assert len(first) < 80
    assert [line for line in first if len(line) > 125] == []


def build(tree: Path, kind: str, place: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(place)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=120)
    (made,) = place.iterdir()
    return made


@pytest.mark.slow
def test_the_wheel_holds_every_file_the_command_and_the_commit(root, tmp_path):
    """One that is built from the source package is the same."""
    wheel = build(root, "wheel", tmp_path / "wheel")
    commit = source_commit(root / "src" / "lodesman")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (entry_points,) = (name for name in inside if name.endswith("entry_points.txt"))
        assert "lode = lodesman.user.cli:main" in archive.read(entry_points).decode()
        noted = archive.read("lodesman/commit.txt").decode() if commit else ""
    assert noted.strip() == commit
    source = root / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert files - inside == set()
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not (source / "lodesman" / "commit.txt").exists()
    with tarfile.open(build(root, "sdist", tmp_path / "sdist")) as sources:
        sources.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()
    assert build(tree, "wheel", tmp_path / "again").read_bytes() == wheel.read_bytes()
