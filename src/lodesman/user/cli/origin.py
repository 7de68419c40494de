"""Which commit this program is. scripts/build_commit.py runs this file without the package."""

from __future__ import annotations

import re
from pathlib import Path

NOTE = "commit.txt"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHOWN = 12


def version_text(version: str, package: Path) -> str:
    """With the commit, if known."""
    commit = source_commit(package)
    return f"{version} (commit {commit[:_SHOWN]})" if commit else version


def source_commit(package: Path) -> str:
    """'' if unknown; later changes are not seen. A wheel or source package has a note; in a checkout git's files say it."""
    commit = _read(package / NOTE)
    if not commit and package.parent.name == "src":
        root = package.parents[1]
        if 'name = "lodesman"' in _read(root / "pyproject.toml"):
            commit = _read(root / NOTE) or _checked_out(root)
    return commit if _COMMIT.fullmatch(commit) else ""


def _checked_out(root: Path) -> str:
    folder = root / ".git"
    if not folder.is_dir():  # of a second work tree; it names the place
        folder = root / _read(folder).removeprefix("gitdir: ")
    head = _read(folder / "HEAD")
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    branches = folder / (_read(folder / "commondir") or ".")
    return _read(branches / name) or _packed(_read(branches / "packed-refs"), name)


def _packed(refs: str, name: str) -> str:
    lines = (line.split(" ") for line in refs.splitlines())
    return next((words[0] for words in lines if words[1:] == [name]), "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
