"""Input sandboxes from friends and from enemies."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot import launch
from lodesman.pilot.launch import BadSandbox, fetch, make_place, safe_name, unpack
from lodesman.pilot.protocol import SandboxFile
from lodesman.wire.client import BadChecksum


def entry(name, content=b"", **more):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in more.items():
        setattr(info, attribute, value)
    return info, content


def tar_of(*entries, packed=True):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz" if packed else "w") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return target.getvalue()


@pytest.fixture
def here(tmp_path):
    directory = tmp_path / "job"
    directory.mkdir()
    return directory


@pytest.fixture
def unpacked(here, tmp_path):
    def run(*entries, raw=None, packed=True):
        file = tmp_path / "archive"
        file.write_bytes(tar_of(*entries, packed=packed) if raw is None else raw)
        unpack(file, here)
        return {str(path.relative_to(here)): path for path in here.rglob("*")}

    return run


# --- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", "a"),
        ("./a", "a"),
        ("a/./b", "a/b"),
        ("a//b", "a/b"),
        ("ä ö", "ä ö"),
        ("-rf", "-rf"),
        ("...", "..."),
    ],
)
def test_names_that_stay_inside(name, path):
    assert safe_name(name) == PurePosixPath(path)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/", "/etc/passwd", "a/../b", "a/..", "../a", "a\0b", "x" * 256, "ä" * 200]
)
def test_names_that_do_not(name):
    with pytest.raises(BadSandbox):
        safe_name(name)


@given(st.text(max_size=40))
def test_a_name_is_refused_or_stays_inside(name):
    try:
        path = safe_name(name)
    except BadSandbox as fault:
        fault.message.encode()
        return
    assert os.path.normpath(f"/job/{path}").startswith("/job/")


def test_directories_are_made_but_links_are_not_followed(here):
    assert make_place(here, "a/b/c") == here / "a/b/c"
    assert (here / "a/b").is_dir()
    (here / "link").symlink_to("/tmp")
    (here / "file").write_text("")
    for name in ("link/x", "file/x"):
        with pytest.raises(BadSandbox):
            make_place(here, name)


# --- archives ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_files_directories_and_links(unpacked, packed):
    found = unpacked(
        entry(".", type=tarfile.DIRTYPE),
        entry("d", type=tarfile.DIRTYPE, mode=0o000),
        entry("d/run.sh", b"#!/bin/sh\n", mode=0o4755),
        entry("data", b"x" * 100_000, mode=0o666, uid=12345),
        entry("e/f/g", b"deep"),
        entry("l", type=tarfile.SYMTYPE, linkname="d/run.sh"),
        entry("d/up", type=tarfile.SYMTYPE, linkname="../data"),
        packed=packed,
    )
    assert set(found) == {"d", "d/run.sh", "data", "e", "e/f", "e/f/g", "l", "d/up"}
    assert stat.S_IMODE(found["d/run.sh"].stat().st_mode) == 0o700
    assert stat.S_IMODE(found["data"].stat().st_mode) == 0o600
    assert found["l"].read_bytes() == b"#!/bin/sh\n"
    assert len(found["d/up"].read_bytes()) == 100_000


def test_the_last_of_two_with_one_name_stays(unpacked):
    found = unpacked(
        entry("a", b"first"), entry("a", type=tarfile.SYMTYPE, linkname="b"), entry("a", b"last")
    )
    assert found["a"].read_bytes() == b"last"
    assert not found["a"].is_symlink()


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../escape", b"x")],
        [entry("/abs", b"x")],
        [entry("a/../../escape", b"x")],
        [entry("l", type=tarfile.SYMTYPE, linkname="/tmp")],
        [entry("l", type=tarfile.SYMTYPE, linkname="..")],
        [entry("l", type=tarfile.SYMTYPE, linkname="../job")],
        [entry("l", type=tarfile.SYMTYPE, linkname="")],
        [entry("d/l", type=tarfile.SYMTYPE, linkname="../../x")],
        # Through a link to itself the way up would be longer than it seems.
        [
            entry("s", type=tarfile.SYMTYPE, linkname="."),
            entry("t", type=tarfile.SYMTYPE, linkname="s/s/../.."),
        ],
        [entry("s", type=tarfile.SYMTYPE, linkname="d"), entry("s/x", b"x")],
        [entry("h", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [entry("p", type=tarfile.FIFOTYPE)],
        [entry("c", type=tarfile.CHRTYPE)],
        [entry("f", b"x"), entry("f/g", b"x")],
    ],
)
def test_hostile_members(unpacked, tmp_path, entries):
    with pytest.raises(BadSandbox) as fault:
        unpacked(*entries)
    assert fault.value.message.endswith(".")
    assert {path.name for path in tmp_path.iterdir()} == {"job", "archive"}


@pytest.mark.parametrize(
    "raw",
    [b"not an archive", b"\x1f\x8b", gzip.compress(b"text"), tar_of(entry("a", b"x" * 10_000))[:-200]],
    ids=["no archive", "head only", "no tar inside", "cut off"],
)
def test_broken_archives(unpacked, raw):
    with pytest.raises(BadSandbox):
        unpacked(raw=raw)


def test_bombs(unpacked, monkeypatch):
    monkeypatch.setattr(launch, "_MAX_BYTES", 1000)
    monkeypatch.setattr(launch, "_MAX_MEMBERS", 10)
    with pytest.raises(BadSandbox, match="too large"):
        unpacked(entry("zeros", bytes(2000)))
    with pytest.raises(BadSandbox, match="too large"):
        unpacked(*[entry(str(number)) for number in range(20)])


def test_a_header_that_would_fill_the_memory(unpacked):
    """tarfile reads a long name in one piece, whatever length it claims."""
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 1 << 33
    raw = header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000)
    with pytest.raises(BadSandbox, match="too long"):
        unpacked(raw=raw)


def test_headers_that_follow_one_another_count_together(unpacked):
    long = tarfile.TarInfo("a" * (3 << 20)).tobuf(tarfile.GNU_FORMAT)[:-512]
    with pytest.raises(BadSandbox, match="too long"):
        unpacked(raw=long + long + tar_of(entry("a")))
    small = tarfile.TarInfo("a" * 101).tobuf(tarfile.GNU_FORMAT)[:-512]
    with pytest.raises(BadSandbox, match="recursion"):
        unpacked(raw=small * 2_000 + tar_of(entry("a")))


def test_names_that_steer_a_terminal_are_refused(unpacked):
    with pytest.raises(BadSandbox, match="not the name of a file"):
        unpacked(entry("a\x1b[2Jb", b"x"))


@given(st.binary(max_size=2000))
def test_no_bytes_break_it(tmp_path_factory, content):
    directory = tmp_path_factory.mktemp("fuzz")
    archive = directory / "archive"
    archive.write_bytes(content)
    try:
        unpack(archive, directory)
    except BadSandbox as fault:
        fault.message.encode()


# --- fetching ---------------------------------------------------------------------------------------


class Shelf:
    """Stands for the client: what it is asked for lies here."""

    def __init__(self, content):
        self.content = content

    def download(self, url, file, sha256, size):
        if sha256 == "bad":
            raise BadChecksum("No.")
        file.write_bytes(self.content)


def shelf(content) -> Any:
    return Shelf(content)


def part(name="data", *, unpack=False, sha256="good", executable=False):
    return SandboxFile(name, "/v1/sandboxes/x", sha256, 1, unpack, executable)


@pytest.mark.parametrize(("executable", "mode"), [(False, 0o600), (True, 0o700)])
def test_a_plain_file(here, tmp_path, executable, mode):
    fetch(shelf(b"x"), part("d/data", executable=executable), here, spare=tmp_path / "spare")
    assert (here / "d/data").read_bytes() == b"x"
    assert stat.S_IMODE((here / "d/data").stat().st_mode) == mode


@pytest.mark.parametrize("modified", [1_000, 0, -5, 1 << 62])
def test_files_have_their_times_of_change_but_of_the_future(here, tmp_path, modified):
    member = entry("a", b"x", mtime=min(modified, 1 << 33))
    before = time.time()
    fetch(shelf(b"x"), replace(part(), modified=modified), here, spare=tmp_path / "spare")
    fetch(shelf(tar_of(member)), part(unpack=True), here, spare=tmp_path / "spare")
    for found in ((here / name).stat().st_mtime for name in ("data", "a")):
        assert found == modified if modified == 1_000 else before - 5 < found < time.time() + 5


def test_an_archive_is_unpacked_and_its_bytes_removed(here, tmp_path):
    fetch(shelf(tar_of(entry("a", b"x"))), part(unpack=True), here, spare=tmp_path / "spare")
    assert [path.name for path in here.iterdir()] == ["a"]
    assert not (tmp_path / "spare").exists()


def test_what_cannot_be_fetched(here, tmp_path):
    with pytest.raises(BadChecksum):
        fetch(shelf(b""), part(sha256="bad"), here, spare=tmp_path / "spare")
    with pytest.raises(BadSandbox):
        fetch(shelf(b"junk"), part(unpack=True), here, spare=tmp_path / "spare")
    with pytest.raises(BadSandbox):
        fetch(shelf(b"x"), part("../x"), here, spare=tmp_path / "spare")
    assert not (tmp_path / "spare").exists()
