"""A cgroup v2 for each local pilot, where the system lets this process make one.

It is an addition, never a need: a process can leave its cgroup, and most machines delegate none. The keeper
kills by family in any case.
"""

from __future__ import annotations

from pathlib import Path

from lodesman.batch.keeper import remove_cgroup


def _own_directory(own: str, mounts: str) -> Path | None:
    """The directory of one's own cgroup v2, from the texts of /proc/self/cgroup and /proc/self/mountinfo.

    None on a machine without cgroup v2, and where the mount shows another part of the tree than one's own
    (a bind mount inside a container).
    """
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), None)
    if path is None or "/.." in path:
        return None
    for line in mounts.splitlines():
        place, _, kind = line.partition(" - ")
        fields = place.split()
        if len(fields) < 5 or not kind.startswith("cgroup2 "):
            continue
        root, point = fields[3].rstrip("/"), fields[4]
        if path == root or path.startswith(root + "/"):
            return Path(_unescaped(point) + path.removeprefix(root))
    return None


def _unescaped(text: str) -> str:
    """A mountinfo field as it was; the kernel writes blanks and backslashes as octal numbers."""
    for escape, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(escape, character)
    return text


def make_cgroup(name: str) -> str | None:
    """The path of a cgroup of this name below one's own, which can be killed at one stroke; else None."""
    try:
        own, mounts = (Path("/proc/self", file).read_text() for file in ("cgroup", "mountinfo"))
        parent = _own_directory(own, mounts)
        if parent is None:
            return None
        made = parent / name
        made.mkdir(exist_ok=True)
    except OSError:
        return None
    if (made / "cgroup.kill").exists():
        return str(made)
    remove_cgroup(str(made))
    return None
