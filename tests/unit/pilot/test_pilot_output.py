"""Packing what a job wants back, whatever its payload left behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot import output
from lodesman.pilot.output import _CUT_STREAM_BYTES, _plan_bytes, matches, pack
from lodesman.pilot.protocol import MB
from lodesman.wire.client import Aborted, sha256_of


@pytest.fixture
def here(tmp_path):
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / "std.out").write_bytes(b"out")
    (directory / "std.err").write_bytes(b"")
    return directory


@pytest.fixture
def packed(here, tmp_path, make_job):
    def run(*patterns, max_bytes=0, max_packed=0, streams=("std.out", "std.err")):
        target = tmp_path / "out.tar.gz"
        limits = {"limit_output_mb": max_bytes / MB, "limit_sandbox_mb": max_packed / MB}
        names = {"std_output": streams[0], "std_error": streams[-1]}
        job = make_job(output_sandbox=patterns, **names, **limits)
        result = pack(here, job, target, stopped=lambda: False)
        assert result.sha256 == sha256_of(target)
        assert result.size == target.stat().st_size
        with tarfile.open(target) as tar:
            content = {member.name: tar.extractfile(member).read() for member in tar}
        return result, content

    return run


def write(here, **files):
    for name, content in files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_the_streams_are_always_there(packed):
    result, content = packed()
    assert content == {"std.out": b"out", "std.err": b""}
    assert (result.cut, result.left_out, result.missing) == ((), (), ())


def test_names_patterns_and_directories(here, packed):
    write(
        here, **{"a.txt": b"1", "b.txt": b"2", "c.dat": b"3", "d/e/f": b"4", "d/g.txt": b"5", ".hidden": b"6"}
    )
    _, content = packed("a.txt", "*.dat", "d")
    assert set(content) == {"std.out", "std.err", "a.txt", "c.dat", "d/e/f", "d/g.txt"}
    assert set(packed("*")[1]) == {"std.out", "std.err", "a.txt", "b.txt", "c.dat", "d/e/f", "d/g.txt"}
    assert set(packed("**/*.txt", ".hidden")[1]) == {
        "std.out",
        "std.err",
        "a.txt",
        "b.txt",
        "d/g.txt",
        ".hidden",
    }


def test_temporary_files_are_not_output(here, packed):
    write(here, **{".tmp/x": b"1", "d/.tmp/x": b"2"})
    assert set(packed(".tmp", "**", "d/.tmp")[1]) == {"std.out", "std.err", "d/.tmp/x"}


def test_a_name_with_signs_of_patterns_is_a_name_too(here, packed):
    write(here, **{"a[1].txt": b"1", "a1.txt": b"2", "-rf": b"3"})
    assert set(packed("a[1].txt", "-rf")[1]) >= {"a[1].txt", "-rf"}


def test_a_name_that_steers_a_terminal_is_not_packed(here, packed):
    write(here, **{"good": b"1", "new\nline": b"2", "d/\x1b[2J": b"3"})
    result, content = packed("good", "d", "new*")
    assert set(content) == {"std.out", "std.err", "good"}
    assert result.missing == tuple(
        f"{name} (control characters in its name)" for name in (r"d/\x1b[2J", r"new\nline")
    )


def test_missing_files_are_reported(here, packed):
    write(here, a=b"")
    result, content = packed("a", "b", "../job/std.out", "/etc/passwd", "", "c*")
    outside = "not a name inside the job's directory"
    assert result.missing == (
        "b (not found)", f"../job/std.out ({outside})", f"/etc/passwd ({outside})", f" ({outside})",
        "c* (not found)",
    )  # fmt: skip
    assert set(content) == {"std.out", "std.err", "a"}


def test_links(here, packed, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    write(here, **{"d/real": b"real"})
    (here / "inside").symlink_to("d/real")
    (here / "outside").symlink_to(tmp_path / "secret")
    (here / "up").symlink_to(tmp_path)
    (here / "self").symlink_to("self")
    (here / "gone").symlink_to("nothing")
    result, content = packed("*", "up/secret")
    assert content["inside"] == b"real"
    assert b"secret" not in content.values()
    out = "a link that leads out of the job's directory"
    assert result.missing == (
        "up/secret (not found)", "gone (a link to nothing)", f"outside ({out})",
        "self (cannot be followed: it leads in circles)", f"up ({out})",
    )  # fmt: skip


def test_files_that_exist_and_cannot_be_packed_are_reported(here, packed, tmp_path, monkeypatch):
    write(here, r=b"real", locked=b"mine")
    (here / "p").symlink_to("/etc/hostname")
    (here / "up").symlink_to(tmp_path)
    (here / "gone").symlink_to("nothing")
    (here / "circle").symlink_to("circle")
    os.mkfifo(here / "q")
    usual = Path.open

    def refused(path, *words):
        if path.name == "locked":  # tests may run as root, to whom nothing is locked
            raise PermissionError(13, "Permission denied")
        return usual(path, *words)

    monkeypatch.setattr(Path, "open", refused)
    result, content = packed("p", "q", "r", "up", "gone", "circle", "loc*", "[pq]", "*")
    assert set(content) == {"std.out", "std.err", "r"}
    out = "a link that leads out of the job's directory"
    assert result.missing == (
        "circle (cannot be followed: it leads in circles)", "gone (a link to nothing)", f"p ({out})",
        "q (not a regular file)", f"up ({out})", "locked (cannot be read: Permission denied)",
    )  # fmt: skip
    assert packed("?", "[pq]", "**", "p")[0].missing == packed("*", "p", "gone")[0].missing == result.missing


def test_a_stream_that_became_something_else(here, packed, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (here / "std.out").unlink()
    (here / "std.out").symlink_to(tmp_path / "secret")
    (here / "std.err").unlink()
    os.mkfifo(here / "std.err")
    os.mkfifo(here / "pipe")
    result, content = packed("pipe")
    assert content == {}
    assert [line.partition(" (")[0] for line in result.missing] == ["std.out", "std.err", "pipe"]
    result, content = packed(streams=("/etc/passwd", "../secret"))
    assert content == {}
    assert [line.partition(" (")[0] for line in result.missing] == ["/etc/passwd", "../secret"]


def test_names_that_are_no_utf8(here, packed):
    name = os.fsdecode(b"\xff\xfe")
    write(here, **{name: b"x"})
    assert packed("*")[1][name] == b"x"


def test_modes_times_and_owners(here, packed, tmp_path):
    modes = {"run": 0o755, "data": 0o644, "own": 0o600, "root": 0o6711}
    for number, (name, mode) in enumerate(modes.items()):
        write(here, **{name: b""})
        (here / name).chmod(mode)
        os.utime(here / name, (number, number))
    (here / "std.out").chmod(0o600)
    packed("*")
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        found = {member.name: (member.mode, member.mtime, member.uid, member.uname) for member in tar}
    assert [found[name] for name in modes] == [
        (0o755, 0, 0, ""), (0o644, 1, 0, ""), (0o600, 2, 0, ""), (0o711, 3, 0, ""),
    ]  # fmt: skip
    assert found["std.out"][0] == 0o666, "the umask of its reader decides"


def test_over_the_limit_only_the_ends_of_the_streams_are_kept(here, packed):
    write(here, **{"std.out": b"x" * _CUT_STREAM_BYTES + b"the end", "big": bytes(1000)})
    result, content = packed("big", max_bytes=_CUT_STREAM_BYTES)
    assert (result.cut, result.left_out) == (("std.out",), ("big",))
    assert set(content) == {"std.out", "std.err"}
    assert len(content["std.out"]) == _CUT_STREAM_BYTES
    assert content["std.out"].endswith(b"the end")
    fits = packed("big", max_bytes=_CUT_STREAM_BYTES + 1007)[0]
    assert (fits.cut, fits.left_out) == ((), ())


def test_files_that_fit_are_kept_beside_those_that_do_not(here, packed):
    with (here / "a.sparse").open("wb") as hole:
        hole.truncate(60 << 30)  # packed in full it would take many minutes
    write(here, **{"b": b"small", "std.out": b"s" * 700, "c": b"x" * 900, "d": b"y" * 200})
    result, content = packed("*", max_bytes=2000)
    assert (result.cut, result.left_out) == ((), ("a.sparse",))
    assert {name: len(content[name]) for name in content} == {
        "std.out": 700, "std.err": 0, "b": 5, "c": 900, "d": 200,
    }  # fmt: skip
    assert packed("*", max_bytes=1700)[0].left_out == ("a.sparse", "d")


@given(
    st.dictionaries(st.sampled_from(["o", "e"]), st.integers(0, 3 * _CUT_STREAM_BYTES)),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3 * _CUT_STREAM_BYTES)),
    st.integers(1, 4 * _CUT_STREAM_BYTES),
)
def test_a_plan_keeps_to_its_limit(streams, files, most):
    plan, left_out = _plan_bytes(streams, files, most)
    assert sum(plan.values()) <= most
    assert set(plan) | set(left_out) == set(streams) | set(files)
    assert all(plan[name] == files[name] for name in files if name in plan)
    assert all(files[name] + sum(plan.values()) > most for name in left_out)
    if sum(streams.values()) + sum(files.values()) <= most:
        assert plan == {**streams, **files}
    assert _plan_bytes(streams, files, 0) == ({**streams, **files}, [])


@pytest.mark.parametrize("size", [1, 60_000, 500_000, 1_020_000, 1_044_000, 1_048_576])
def test_what_cannot_be_compressed_does_not_make_the_archive_too_large(here, packed, size):
    """A server that refuses the archive as a whole would lose the small results too."""
    most = 1 << 20
    write(here, a=os.urandom(size), b=os.urandom(most - size), **{"d" * 200: b"", "std.out": b""})
    result, content = packed("*", max_bytes=most, max_packed=most)
    assert result.size <= most
    assert {"std.out", "std.err"} <= set(content)
    assert set(content) | set(result.left_out) == {"std.out", "std.err", "a", "b", "d" * 200}
    assert result.left_out
    assert all((here / name).stat().st_size + result.size > most * 0.99 for name in result.left_out)


def test_a_stream_that_cannot_be_compressed_is_cut_to_what_fits(here, packed):
    noise = os.urandom(1 << 20)
    write(here, **{"std.out": noise})
    result, content = packed(max_bytes=1 << 20, max_packed=1 << 20)
    assert result.cut == ("std.out",)
    assert result.size <= 1 << 20
    assert noise.endswith(content["std.out"])
    assert len(content["std.out"]) > 0.99 * (1 << 20)


@pytest.mark.slow
def test_what_is_compressed_well_may_be_as_much_as_the_limit_says(here, packed):
    write(here, **{f"{number:04}": b"x" * 100 for number in range(1000)})
    result, content = packed("*", max_bytes=1 << 20, max_packed=100_010)
    assert (len(content), result.left_out) == (1002, ())


def test_packing_ends_when_it_is_no_longer_needed(here, tmp_path, make_job):
    with (here / "hole").open("wb") as hole:
        hole.truncate(60 << 30)
    looks = iter(range(10))
    job = make_job(output_sandbox=("hole",))
    with pytest.raises(Aborted):
        pack(here, job, tmp_path / "out.tar.gz", stopped=lambda: next(looks) > 5)
    assert (tmp_path / "out.tar.gz").stat().st_size < 1 << 20


def test_finding_ends_when_it_is_no_longer_needed(here, tmp_path, make_job):
    """A large number of files that no pattern matches is never read, but looked through."""
    write(here, **{f"{number:04}": b"" for number in range(100)})
    looks = iter(range(10))
    with pytest.raises(Aborted):
        pack(here, make_job(output_sandbox=("*.none",)), tmp_path / "out", stopped=lambda: next(looks) > 5)


@pytest.mark.slow
def test_names_cost_no_comparison_and_patterns_are_a_hundred(here, packed, monkeypatch):
    calls = []
    real = output.matches
    monkeypatch.setattr(output, "matches", lambda path, goal: calls.append(1) or real(path, goal))
    write(here, **{f"f{number}": b"1" for number in range(200)})
    assert len(packed(*(f"f{number}" for number in range(200)))[1]) == 202
    assert calls == []
    packed(*(f"*{number}" for number in range(300)))
    assert len(calls) <= 100 * 202


def test_the_same_files_give_the_same_bytes(here, packed):
    write(here, a=b"1")
    os.utime(here / "a", (1, 1))
    assert packed("a")[0].sha256 == packed("a")[0].sha256


def test_an_unreadable_directory_is_left_out(here, packed):
    write(here, **{"d/x": b"1", "e": b"2"})
    (here / "d").chmod(0)
    try:
        _, content = packed("d", "e")
    finally:
        (here / "d").chmod(0o700)
    assert "e" in content


@pytest.mark.slow
def test_a_folder_that_may_be_read_and_not_entered_ends_no_packing():
    """Nobody but root is told what something in it is."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from lodesman.pilot.output import _walk_files\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "top = Path(sys.argv[1]) / 'top'\n"
        "(top / 'd' / 'x').mkdir(parents=True)\n"
        "(top / 'd').chmod(0o400)\n"
        "(top / 'e').write_text('')\n"
        "locked = {}\n"
        "print(*_walk_files(top, locked))\n"
        "print({str(name): why for name, why in locked.items()})\n"
        "(top / 'd').chmod(0o700)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(output.__file__).parents[2])}
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        command = [sys.executable, "-c", code, place]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "e\n{'d/x': 'cannot be read: Permission denied'}\n", done.stderr


@pytest.mark.slow
def test_folders_that_nobody_can_read_are_named_and_that_of_the_job_is_opened():
    code = """import json, os, sys
from pathlib import Path
from lodesman.pilot.output import pack
from lodesman.pilot.protocol import AssignedJob, AttemptKey
if os.geteuid() == 0: os.setuid(65534)
top = Path(sys.argv[1]) / 'top'
(top / 'd/e').mkdir(parents=True)
(top / '.h').mkdir()
for name in ('std.out', 'std.err', 'x', 'd/y', 'd/e/z', '.h/n'): (top / name).write_text('text')
found = []
for wanted in sys.argv[2:]:
    for name in ('d/e', '.h', '.'): (top / name).chmod(0)
    job = AssignedJob(AttemptKey(1, 1), 'x', output_sandbox=tuple(wanted.split()))
    found.append(pack(top, job, top.parent / 'out', stopped=lambda: False).missing)
    for name in ('d/e', '.h'): (top / name).chmod(0o700)
print(json.dumps(found))
"""
    wanted = {
        "x": [], "": [], "d/*": ["d/e"], "d/e": ["d/e"], "**": [".h", "d/e"], "x .h": [".h"],
        "nothing": ["nothing (not found)"], "d/e/z": ["d/e/z (not found)", "d/e"], "*/*/z": ["*/*/z (not found)", "d/e"],
    }  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(output.__file__).parents[2])}
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        command = [sys.executable, "-c", code, place, *wanted]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    why = " (cannot be read: Permission denied)"
    said = [[name if "(" in name else f"{name}{why}" for name in names] for names in wanted.values()]
    assert json.loads(done.stdout or "0") == said, done.stderr


def test_files_that_lie_too_deep_are_left_out_with_a_word(here, packed):
    write(here, **{"a/" * 100 + "f": b"1", "a/" * 101 + "g": b"2"})
    result, content = packed("a", "**/f", "**")
    assert content["a/" * 100 + "f"] == b"1"
    assert "a/" * 101 + "g" not in content
    why = "files in more than 100 folders are left out"
    assert result.missing == (f"a ({why})", f"** ({why})")


# --- patterns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "pattern", "hit"),
    [
        ("a", "a", True),
        ("a/b", "a", True),
        ("a", "a/b", False),
        ("a/b", "*", True),
        ("a/b.txt", "*.txt", False),
        ("a/b.txt", "*/*.txt", True),
        ("a/b/c.txt", "**/*.txt", True),
        ("c.txt", "**/*.txt", True),
        (".a", "*", False),
        (".a", ".*", True),
        (".a/b", "**", True),
        (".a/b", "**/b", False),
        ("a/.b", "a/**", True),
        ("ab", "a?", True),
        ("ab", "[!a]b", False),
        ("A", "a", False),
    ],
)
def test_patterns(path, pattern, hit):
    assert matches(PurePosixPath(path), PurePosixPath(pattern)) is hit


def test_no_pattern_takes_long():
    path = PurePosixPath(*["a"] * 60)
    began = time.process_time()
    assert not matches(path, PurePosixPath("/".join(["**"] * 60 + ["b"])))
    assert not matches(PurePosixPath("a" * 200), PurePosixPath("*a" * 60 + "b"))
    assert time.process_time() - began < 20  # tried one after the other, the ways would take years


@given(
    st.lists(st.sampled_from(["a", "b", ".c"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "*", "**", "?", ".c"]), min_size=1, max_size=4),
)
def test_patterns_as_defined(parts, steps):
    def truth(parts, steps):
        if not steps:
            return True
        if steps[0] == "**":
            more = bool(parts) and not parts[0].startswith(".") and truth(parts[1:], steps)
            return truth(parts, steps[1:]) or more
        if not parts or (parts[0].startswith(".") and not steps[0].startswith(".")):
            return False
        fits = steps[0] in (parts[0], "*") or (steps[0] == "?" and len(parts[0]) == 1)
        return fits and truth(parts[1:], steps[1:])

    assert matches(PurePosixPath(*parts), PurePosixPath(*steps)) is truth(parts, steps)


def test_a_link_in_place_of_the_folder_of_a_payload_opens_nothing(tmp_path, make_job):
    """The payload put it there; what it leads to stays as it is."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    elsewhere.chmod(0o755)
    (tmp_path / "here").symlink_to(elsewhere)
    pack(tmp_path / "here", make_job(), tmp_path / "packed", stopped=lambda: False)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
