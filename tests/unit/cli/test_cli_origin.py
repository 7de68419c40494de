"""The commit of the sources: of a package that was built, of a checkout, and never that of another repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from lodesman import __version__
from lodesman.user.cli import origin, root

ONE, TWO = "1a2b3c4d5e6f" + "0" * 28, "f" * 40


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A checkout's folder of the package; git's files are the test's."""
    write(tmp_path / "pyproject.toml", '[project]\nname = "lodesman"\n')
    found = tmp_path / "src" / "lodesman"
    found.mkdir(parents=True)
    return found


def test_the_command_says_the_version_and_the_commit(lode, package, monkeypatch):
    monkeypatch.setattr(root, "__file__", str(package / "user" / "cli" / "root.py"))
    assert lode("--version").out == f"lode {__version__}\n"
    write(package / "commit.txt", f"{ONE}\n")
    assert lode("--version").out == f"lode {__version__} (commit 1a2b3c4d5e6f)\n"


def test_a_checkout_says_its_commit_without_git(tmp_path, package, monkeypatch):
    monkeypatch.setenv("PATH", "")
    git = tmp_path / ".git"
    assert origin.source_commit(package) == ""
    write(git / "HEAD", f"{ONE}\n")
    assert origin.source_commit(package) == ONE
    write(git / "HEAD", "ref: refs/heads/a/branch\n")
    write(
        git / "packed-refs",
        f"# pack-refs with: peeled\n{TWO} refs/heads/a\n{ONE} refs/heads/a/branch\n^{TWO}\n",
    )
    assert origin.source_commit(package) == ONE
    write(git / "refs" / "heads" / "a" / "branch", f"{TWO}\n")
    assert origin.source_commit(package) == TWO


def test_a_second_work_tree_says_its_own_commit(tmp_path, package):
    first = tmp_path / "first" / ".git"
    write(tmp_path / ".git", f"gitdir: {first}/worktrees/second\n")
    write(first / "HEAD", f"{TWO}\n")
    write(first / "worktrees" / "second" / "HEAD", "ref: refs/heads/second\n")
    write(first / "worktrees" / "second" / "commondir", "../..\n")
    write(first / "refs" / "heads" / "second", f"{ONE}\n")
    assert origin.source_commit(package) == ONE


def test_the_note_of_a_build_counts_before_git(tmp_path, package):
    """As where a source package is unpacked into a repository of its own."""
    write(tmp_path / ".git" / "HEAD", f"{TWO}\n")
    write(tmp_path / "commit.txt", f"{ONE}\n")
    assert origin.source_commit(package) == ONE


def test_the_repository_of_another_program_says_nothing(tmp_path, package):
    write(tmp_path / ".git" / "HEAD", f"{TWO}\n")
    write(tmp_path / "pyproject.toml", '[project]\nname = "analysis"\n')
    assert origin.source_commit(package) == ""
    write(tmp_path / "pyproject.toml", '[project]\nname = "lodesman"\n')
    installed = tmp_path / "lib" / "lodesman"
    installed.mkdir(parents=True)
    assert origin.source_commit(installed) == ""


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref: ", "unknown", ONE[:12], "\x00\xff"])
def test_what_is_no_commit_is_left_out(tmp_path, package, head):
    write(tmp_path / ".git" / "HEAD", head)
    assert origin.version_text("0.1.0", package) == "0.1.0"
