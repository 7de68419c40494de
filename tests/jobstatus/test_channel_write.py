"""The writer: what is on disk after each publication, in which order it came there, and which directories are refused."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.jobstatus.kits.channels import contents_of, number_in, numbered, on_disk

from lodesman.base import kernel
from lodesman.site.jobstatus.channel import Publication
from lodesman.site.jobstatus.locks import has_local_locks, takes_both
from lodesman.site.jobstatus.values import KEYS, Status

ROOT = Path(__file__).parents[2]


@pytest.fixture
def publication(tmp_path):
    found = Publication(tmp_path)
    yield found
    found.close()


def test_all_nine_keys_and_nothing_else(publication, tmp_path):
    assert publication.publish(numbered(3))
    assert sorted(os.listdir(tmp_path)) == sorted(KEYS)
    assert on_disk(tmp_path) == {key: f"{text}\n" for key, text in contents_of(3).items()}


def test_used_cpu_stays_the_same_file_and_the_others_are_replaced(publication, tmp_path):
    def files():
        return {key: (tmp_path / key).stat().st_ino for key in KEYS}

    publication.publish(numbered(3))
    kept = {key: (tmp_path / key).open() for key in KEYS}  # so that no number is used again
    before = files()
    publication.publish(numbered(4))
    assert [key for key, file in files().items() if file == before[key]] == ["used_CPU"]
    for file in kept.values():
        file.close()


@pytest.mark.parametrize(("first", "second"), [(7, 8), (8, 7), (7, 17)])
def test_used_cpu_grows_and_shrinks(publication, tmp_path, first, second):
    publication.publish(numbered(first))
    publication.publish(numbered(second))
    assert (tmp_path / "used_CPU").read_text() == f"{numbered(second).used_cpu}\n"


def test_a_longer_used_cpu_is_never_half_overwritten(publication, tmp_path, monkeypatch):
    seen = []
    truncate = os.ftruncate

    def spy(descriptor, length):
        seen.append((tmp_path / "used_CPU").read_bytes())
        truncate(descriptor, length)

    publication.publish(numbered(7))
    monkeypatch.setattr(os, "ftruncate", spy)
    publication.publish(numbered(8))
    publication.publish(numbered(4))
    assert seen == [b"8\n\n\n\n", b"4\n"]


def test_a_value_that_goes_away_takes_its_file_along(publication, tmp_path):
    publication.publish(numbered(3))
    publication.publish(Status(used_cpu=2, add_uncom_time=5))
    assert on_disk(tmp_path) == {"used_CPU": "2\n", "add_uncom_time": "5\n"}


def test_a_heart_beat_moves_all_times(publication, tmp_path):
    publication.publish(numbered(3))
    for key in KEYS:
        os.utime(tmp_path / key, (5, 5))
    publication.publish(numbered(3))
    assert min((tmp_path / key).stat().st_mtime for key in KEYS) > 5


def test_used_cpu_is_the_last_that_is_written(publication, tmp_path):
    for n in (3, 4):
        publication.publish(numbered(n))
        times = {key: (tmp_path / key).stat().st_mtime_ns for key in KEYS}
        assert max(times.values()) == times["used_CPU"]


def test_a_status_without_used_cores_or_that_no_reader_takes_is_refused(publication, tmp_path):
    for wrong in (Status(last_job_start=5), Status(used_cpu=-1), Status(used_cpu=10**18)):
        with pytest.raises(ValueError, match="used_CPU"):
            publication.publish(wrong)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "left", [[".used_CPU.new"], [".priority_factor.new"], [f".{key}.new" for key in KEYS]]
)
@pytest.mark.parametrize("published", [False, True])
def test_what_a_writer_that_died_left_is_no_hindrance(tmp_path, left, published):
    if published:
        first = Publication(tmp_path)
        assert first.publish(numbered(1))
        first.close()
    for name in left:
        (tmp_path / name).write_text("999999\n")
    next_start = Publication(tmp_path)
    assert next_start.publish(numbered(2))
    next_start.close()
    assert number_in(on_disk(tmp_path)) == 2


def test_two_writers_of_one_directory_do_not_mix(tmp_path):
    one, two = Publication(tmp_path), Publication(tmp_path)
    for n in range(6):
        assert (one, two)[n % 2].publish(numbered(n))
        assert number_in(on_disk(tmp_path)) == n
    one.close()
    two.close()


def test_a_file_that_another_writer_made_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    one, two = Publication(tmp_path), Publication(tmp_path)
    first = one._open_lock()  # before the other has begun
    assert first is not None
    (tmp_path / ".used_CPU.new").rename(tmp_path / "gone")
    assert two.publish(numbered(2))
    one._lock = first
    assert not one.publish(numbered(3))
    assert number_in(on_disk(tmp_path)) == 2
    assert one.publish(numbered(4))
    one.close()
    two.close()


def test_the_descriptors_are_given_back(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for n in range(3):
        publication = Publication(tmp_path)
        publication.publish(numbered(n))
        publication.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_descriptor_of_a_file_that_is_refused_is_given_back(tmp_path):
    (tmp_path / "used_CPU").write_text("1\n")
    (tmp_path / "another name").hardlink_to(tmp_path / "used_CPU")
    publication = Publication(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PermissionError, match="Not a file of this user alone"):
        publication.publish(numbered(1))
    assert len(os.listdir("/proc/self/fd")) == before
    publication.close()


# --- where nothing is written ---------------------------------------------------------------------------------------------


def test_the_path_must_be_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not an absolute path"):
        Publication(Path())


def test_it_must_be_a_directory_itself(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    for name in ("file", "link", "absent"):
        with pytest.raises(OSError, match=name):
            Publication(tmp_path / name)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757])
def test_others_must_not_write_there(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(PermissionError, match="Others can write"):
        Publication(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_it_must_be_our_own(tmp_path):
    os.chown(tmp_path, 12_345, 12_345)
    with pytest.raises(PermissionError, match="another user"):
        Publication(tmp_path)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "hard link", "directory"])
@pytest.mark.parametrize("name", ["used_CPU", ".used_CPU.new"])
def test_a_lock_file_that_is_something_else_is_not_written(tmp_path, kind, name):
    """A payload has the rights of its pilot."""
    precious, folder = tmp_path / "precious", tmp_path / "status"
    precious.write_text("as it was")
    folder.mkdir()
    make = {
        "symlink": lambda at: at.symlink_to(precious),
        "fifo": os.mkfifo,
        "hard link": lambda at: os.link(precious, at),
        "directory": Path.mkdir,
    }
    make[kind](folder / name)
    publication = Publication(folder)
    with pytest.raises(OSError, match=r"used_CPU"):
        publication.publish(numbered(3))
    publication.close()
    assert precious.read_text() == "as it was"


def test_links_in_place_of_new_files_are_replaced(tmp_path):
    precious, folder = tmp_path / "precious", tmp_path / "status"
    precious.write_text("as it was")
    folder.mkdir()
    (folder / ".priority_factor.new").symlink_to(precious)
    (folder / "last_job_start").symlink_to(precious)
    publication = Publication(folder)
    assert publication.publish(numbered(3))
    publication.close()
    assert number_in(on_disk(folder)) == 3
    assert precious.read_text() == "as it was"
    assert not (folder / "last_job_start").is_symlink()


def refuse_to_write(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("full", [refuse_to_write, lambda *_: 3], ids=["no space", "space for a part"])
def test_a_full_disk_leaves_what_was_there(publication, tmp_path, monkeypatch, full):
    publication.publish(numbered(3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            publication.publish(numbered(4))
    assert number_in({key: (tmp_path / key).read_text() for key in KEYS}) == 3
    assert publication.publish(numbered(5))
    assert number_in(on_disk(tmp_path)) == 5


# --- file systems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "both"),
    [(0xEF53, True), (0x0102_1994, True), (0x6969, False), (0xFF53_4D42, False), (None, False)],
)
def test_which_locks_are_taken(tmp_path, monkeypatch, kind, both):
    monkeypatch.setattr(kernel, "file_system", lambda _: kind)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert takes_both(descriptor) is both
    os.close(descriptor)


@pytest.mark.parametrize("kind", [0x517B, 0xFE53_4D42])
def test_smb_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(kernel, "file_system", lambda _: kind)
    with pytest.raises(OSError, match="SMB"):
        Publication(tmp_path)


def test_the_kind_of_a_file_system_is_that_of_stat(tmp_path):
    said = subprocess.run(["stat", "-f", "-c", "%t", tmp_path], capture_output=True, text=True, check=True)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert kernel.file_system(descriptor) == int(said.stdout, 16)
    os.close(descriptor)
    assert kernel.file_system(descriptor) is None


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,local_lock=all
61 22 0:50 / /a rw,relatime shared:7 - nfs4 srv:/a rw,vers=4.2,rsize=1048576,local_lock=none,addr=10.0.0.1
62 22 0:51 / /b rw,relatime - nfs srv:/b rw,vers=3,local_lock=flock,addr=10.0.0.1
63 22 0:52 / /c rw,relatime - nfs srv:/c rw,vers=3,nolock,addr=10.0.0.1
"""


@pytest.mark.parametrize(("minor", "local"), [(50, False), (51, True), (52, True), (53, False)])
def test_nfs_with_locks_of_its_own_machine(minor, local):
    assert has_local_locks(kernel.parse_mounts(MOUNTS), os.makedev(0, minor)) is local


# --- the order of calls ---------------------------------------------------------------------------------------------------

TWICE = """
import sys
from pathlib import Path
from lodesman.site.jobstatus.channel import Publication
from tests.jobstatus.kits.channels import numbered
publication = Publication(Path(sys.argv[1]))
publication.publish(numbered(7))
publication.publish(numbered(8))
"""
TRACED = "flock,fcntl,rename,renameat,renameat2,write,pwrite64,ftruncate,close"
CALL = re.compile(r"(flock|fcntl|rename\w*|pwrite64|ftruncate)\((.*)\) += 0|pwrite64\(.*\) += \d+")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_lock_write_rename_unlock_in_this_order(tmp_path):
    folder, trace = tmp_path / "status", tmp_path / "trace"
    folder.mkdir()
    command = [
        shutil.which("strace"),
        "-f",
        "-o",
        trace,
        "-e",
        f"trace={TRACED}",
        sys.executable,
        "-c",
        TWICE,
        folder,
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if "ptrace" in done.stderr.lower():
        pytest.skip("no process may be traced here")
    assert done.returncode == 0, done.stderr
    calls = [short(found[0]) for line in trace.read_text().splitlines() if (found := CALL.search(line))]
    calls = calls[calls.index("flock LOCK_EX") :]
    renames = [f"rename {key}" for key in KEYS[1:]]
    lock, unlock = ["flock LOCK_EX", "fcntl F_WRLCK"], ["fcntl F_UNLCK", "flock LOCK_UN"]
    first = [*lock, *renames, "pwrite", "ftruncate", "rename used_CPU", *unlock]
    assert calls == [*first, *lock, *renames, "pwrite", "ftruncate", *unlock]


def short(call: str) -> str:
    name = call.partition("(")[0]
    if name.startswith("rename"):
        return "rename " + re.findall(r'"([^"]*)"', call)[-1]
    word = re.search(r"LOCK_EX|LOCK_UN|F_WRLCK|F_UNLCK", call)
    return f"{name} {word[0]}" if word else name.removesuffix("64")


def test_the_files_can_be_read_by_all_as_far_as_the_umask_lets_them(publication, tmp_path):
    publication.publish(numbered(3))
    mask = os.umask(0)
    os.umask(mask)
    assert {stat.S_IMODE((tmp_path / key).stat().st_mode) for key in KEYS} == {0o644 & ~mask}
