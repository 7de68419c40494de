"""What a payload can make its pilot open, read, change or delete for it: nothing that is another job's."""

from __future__ import annotations

import ast
import io
import os
import sys
import tarfile
import tempfile
import time
from base64 import b64decode
from pathlib import Path
from typing import Any, cast

import pytest

from lodesman import pilot as pilot_package
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.reaper import Reaper

SECRET = b"the neighbour's\n"


class Neighbours:
    """A pilot with a payload's folder that belongs to somebody else."""

    def __init__(self, place: Path, make_context, make_job) -> None:
        self.place, self._make_job = place, make_job
        for name in ("work", "outbox"):
            (place / name).mkdir()
        self.nursery = Nursery(str(place / "work"), str(place / "outbox"))
        pilot = make_context(clock=time.time, ticker=time.monotonic, directory=place, nursery=self.nursery)
        self.context = PayloadContext(pilot, Reaper(self.nursery), Outbox(pilot), cast(Any, None))
        self.theirs = place / "work/w99/7.1"
        self.theirs.mkdir(parents=True)
        for name in ("secret", "std.out"):
            (self.theirs / name).write_bytes(SECRET)
        self._made = 0

    def is_confined(self) -> bool:
        """Whether payloads have namespaces here."""
        warden = self.nursery.take()
        self.nursery.give(warden)
        return warden.confined

    def play(self, *command: str, **more) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Run a job to its end: its report, and what is in its output."""
        self._made += 1
        payload = PayloadRun(self._make_job(self._made, *command, **more), self.context)
        payload.run(lambda _: False, lambda _: None)
        items = self.context.outbox._items.values()
        report = next(
            item.report.as_json()
            for item in items
            if item.final and item.report.key == AttemptKey(self._made, 1)
        )
        packed = (report["output"] or {}).get("content")
        if packed is None:
            return report, {}
        with tarfile.open(fileobj=io.BytesIO(b64decode(packed))) as tar:
            return report, {member.name: tar.extractfile(member).read() for member in tar}


@pytest.fixture
def place():
    """Not in /dev/shm, of which payloads have one of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


@pytest.fixture
def neighbours(place, make_context, make_job, monkeypatch):
    monkeypatch.chdir(place)  # as a pilot has it
    made = Neighbours(place, make_context, make_job)
    is_confined = made.is_confined()
    if is_confined:
        yield made
    made.nursery.close()
    if not is_confined:
        pytest.skip("payloads have no namespaces here")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "/proc/self/cwd/{theirs}", "/proc/thread-self/cwd/{theirs}", "{place}/{theirs}",
        "/proc/{pilot}/cwd/{theirs}", "/proc/{pilot}/root{place}/{theirs}",
        "/proc/self/environ", "/proc/self/mem", "/proc/1/maps", "{place}/outbox/attempts.journal",
    ],
)  # fmt: skip
def test_a_standard_input_is_opened_with_the_eyes_of_the_payload(neighbours, name):
    (neighbours.place / "outbox/attempts.journal").write_bytes(SECRET)
    theirs = (neighbours.theirs / "secret").relative_to(neighbours.place)
    name = name.format(place=neighbours.place, pilot=os.getpid(), theirs=theirs)
    report, output = neighbours.play("/bin/cat", std_input=name)
    assert (report["state"], report["cause"], output) == ("Failed", "not-started", {})
    assert report["message"].startswith(f"The StdInput '{name}' is not ")


@pytest.mark.slow
def test_no_open_file_of_the_pilot_is_a_standard_input(place, make_context, make_job):
    (place / "log").write_bytes(SECRET)
    with (place / "log").open() as log:
        neighbours = Neighbours(place, make_context, make_job)  # its wardens inherit the file
        if not neighbours.is_confined():
            neighbours.nursery.close()
            pytest.skip("payloads have no namespaces here")
        (place / "log").rename(place / "outbox/log")
        for name in (f"/proc/self/fd/{log.fileno()}", f"/dev/fd/{log.fileno()}"):
            report, output = neighbours.play("/bin/cat", std_input=name)
            assert SECRET not in output.values()
            assert SECRET.decode() not in report["tail"]
        neighbours.nursery.close()


@pytest.mark.slow
def test_a_payload_reads_its_standard_input_and_cannot_write_through_it(neighbours):
    names = ("/proc/self/cwd/std.err", "/dev/null", "/etc/passwd", "./std.err", "")
    ends = [neighbours.play("/bin/sh", "-c", "cat; echo changed >&0", std_input=name)[0] for name in names]
    assert [end["state"] for end in ends] == ["Failed"] * len(names)  # by the last command
    assert {end["cause"] for end in ends} == {"exit"}
    assert "root:" in ends[2]["tail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "swap",
    [
        "cd ..; mv $OLDPWD gone; ln -s {theirs} $OLDPWD",
        "cd ..; rm -r $OLDPWD; ln -s {theirs} $OLDPWD",
        "cd ..; rm -r $OLDPWD",
    ],
)
@pytest.mark.parametrize("wanted", [("secret",), ("**",), ()])
def test_a_folder_that_is_replaced_by_a_link_is_neither_packed_nor_emptied(neighbours, swap, wanted):
    line = swap.format(theirs=neighbours.theirs)
    for noise in ("", "echo hello; "):
        report, output = neighbours.play("/bin/sh", "-c", noise + line, output_sandbox=wanted)
        assert report["state"] == "Done"
        assert not any(SECRET in content for content in output.values())
    assert {file.name: file.read_bytes() for file in neighbours.theirs.iterdir()} == {
        "secret": SECRET,
        "std.out": SECRET,
    }
    assert neighbours.play("/bin/sh", "-c", "echo next")[1]["std.out"] == b"next\n"


@pytest.mark.slow
def test_a_folder_of_a_stream_that_is_replaced_by_a_link_is_not_followed(neighbours):
    line = f"rm -r sub; ln -s {neighbours.theirs} sub"
    for noise in ("", "; echo hello"):
        _, output = neighbours.play("/bin/sh", "-c", line + noise, std_output="sub/secret")
        assert SECRET not in output.values()
    assert (neighbours.theirs / "secret").read_bytes() == SECRET


# What a payload does to the pilot's folder, three above its own, to the journal in it, and by a link to it.
ATTACK = """
import os
top = os.path.abspath("../../..")
os.symlink(top, "link")
tries = [
    lambda: os.chmod(top, 0), lambda: os.chmod("../../..", 0), lambda: os.chmod("link", 0),
    lambda: os.chmod(os.open(top, os.O_RDONLY), 0), lambda: os.chmod("/proc/self/cwd/../../..", 0),
    lambda: os.chmod(top + "/work", 0), lambda: os.chmod(top + "/outbox", 0),
    lambda: os.chmod(top + "/attempts.journal", 0), lambda: os.rename(top + "/attempts.journal", top + "/gone"),
    lambda: os.rename(top + "/outbox", top + "/gone"), lambda: os.rename(top, top + "-gone"),
    lambda: os.unlink(top + "/attempts.journal"), lambda: os.mkfifo(top + "/fifo"), lambda: os.mkdir(top + "/folder"),
    lambda: open(top + "/attempts.journal", "a"), lambda: os.rename("link", top + "/link"), lambda: os.utime(top),
    lambda: os.setxattr(top, "user.name", b""), lambda: os.mkdir("../../folder"),
]
for number, one in enumerate(tries):
    try:
        one()
        print("could", number)
    except OSError as fault:
        print(fault.strerror)
open("kept", "w").write("written")
"""


@pytest.mark.slow
def test_a_payload_cannot_write_rename_or_lock_anything_in_the_folder_of_its_pilot(neighbours):
    journal = neighbours.place / "attempts.journal"
    journal.write_bytes(SECRET)

    def marks() -> list[tuple[str, int, int]]:
        places = (neighbours.place, *sorted(neighbours.place.iterdir()))
        return [(one.name, one.stat().st_mode, one.stat().st_ino) for one in places]

    before = marks()
    for _ in range(2):  # of one warden
        report, output = neighbours.play(sys.executable, "-c", ATTACK, output_sandbox=("kept",))
        neighbours.place.chmod(0o700)
        assert report["state"] == "Done", report
        assert "could" not in output["std.out"].decode()
        assert output["kept"] == b"written"
        assert (marks(), journal.read_bytes()) == (before, SECRET)


@pytest.mark.slow
def test_a_folder_in_which_all_accounts_write_stays_so_for_payloads(place, make_context, make_job):
    place.chmod(0o1777)
    neighbours = Neighbours(place, make_context, make_job)
    report, _ = neighbours.play("/bin/sh", "-c", f"echo hello > {place}/file")
    neighbours.nursery.close()
    assert (report["state"], (place / "file").read_text()) == ("Done", "hello\n")


@pytest.mark.slow
def test_the_folders_of_other_pilots_of_the_account_are_empty_and_locked_for_a_payload(
    place, make_context, make_job
):
    own, batch, alone, other = (
        place / name for name in ("lode-AbCd1234", "lode-EfGh5678", "lodesman-ab_d1234", "lode")
    )
    for one in (own, batch, alone, other):
        one.mkdir()
    for one in (batch, alone, other):
        for name in ("work", "outbox"):
            (one / name).mkdir()
        (one / "work/secret").write_bytes(SECRET)
    neighbours = Neighbours(own, make_context, make_job)
    if not neighbours.is_confined():
        neighbours.nursery.close()
        pytest.skip("payloads have no namespaces here")
    line = f"cd {place}; cat ./*/*/secret; for one in lode*-*; do chmod 0 $one; touch $one/x; ls -A $one; done; true"
    report, output = neighbours.play("/bin/sh", "-c", line)
    neighbours.nursery.close()
    assert report["state"] == "Done", report
    assert output["std.out"] == SECRET + b"outbox\nwork\n"  # of the folder that is no pilot's, and its own
    assert {one.stat().st_mode & 0o777 for one in (own, batch, alone)} == {0o755}
    assert not list(place.glob("*/x"))


# Every place in the pilot that opens, makes, links, changes or deletes a file by a name that a job or its payload chose,
# and what holds it.
CHOSEN = {
    "enclosure._open_input": "StdInput: by the warden, with links resolved first",
    "launch._find_executable": "Executable: before any process of the job is there, inside its folder",
    "launch._open_outputs": "StdOutput, StdError: below folders that are none of links, itself no link",
    "launch.make_place": "folders of streams and of the input sandbox: none through a link",
    "launch.fetch": "a file of the input sandbox: in such a place",
    "launch._unpack_one": "a file of the input sandbox: in such a place, none that is there",
    "launch._set_time": "a file of the input sandbox that was made in such a place: no link is followed",
    "launch._make_link": "a link of the input sandbox: its goal stays inside",
    "output._unlock": "the folder itself, which is no link",
    "output._add": "files of the output: `_size` has looked where their links lead",
    "output._walk_files": "files of the output: links are not followed; the folder itself is none",
    "payload.PayloadRun._is_removed": "the streams in the folder itself, which is no link",
    "payload.PayloadRun._leave_warden": "its folder, which is no link",
    "payload.PayloadRun._has_folder": "a new folder in place of one that is none any more",
    "launch.remove_tree": "links are removed, not followed",
    "payload.PayloadRun._suspect": "its folder: links are removed, not followed",
    "payload.PayloadRun._hand_in": "its folder: links are removed, not followed",
}
# Names that the pilot, its site or the kernel chose: no payload reaches the folders that they are in.
OWN = {
    "__main__", "archives", "context.OwnFolder", "features", "jobstatus", "loop", "node", "nursery", "outbox", "probe",
    "server_threads", "surroundings", "trial",
    "enclosure._Enclosure", "enclosure._SharedMemory", "enclosure.hide", "enclosure._show", "enclosure._rehearse",
    "enclosure._spawn", "launch.prepare", "launch.unpack", "launch._find_absolute", "output.pack",
    "output.enclose_archive",
    "payload.PayloadRun._begin", "payload.PayloadRun._pack",
}  # fmt: skip
OPENING = {
    "unlock_directory", "remove_tree",
    "open", "mkdir", "makedirs", "chmod", "fchmod", "unlink", "rmdir", "rename", "symlink_to", "symlink", "link", "touch",
    "hardlink_to", "write_text", "write_bytes", "read_text", "read_bytes", "copyfile", "copy", "move", "rmtree", "truncate",
    "utime", "mkfifo", "chdir", "scandir", "listdir", "walk", "iterdir", "glob", "download", "posix_spawn", "bind", "which",
    "chown", "lchown", "copytree",
}  # fmt: skip


def opening_places(module: Path) -> set[str]:
    """The functions of a module that call something of `OPENING`, with the classes around them."""
    found = set()

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            own = f"{name}.{child.name}" if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else name
            called = child.func if isinstance(child, ast.Call) else None
            if getattr(called, "attr", getattr(called, "id", "")) in OPENING:
                found.add(own)
            visit(child, own)

    visit(ast.parse(module.read_text(encoding="utf-8")), module.stem)
    return found


def test_every_door_of_the_pilot_is_one_of_these():
    """A new one: whose name is it, who opens it, with whose eyes?"""
    modules = Path(pilot_package.__file__).parent.glob("*.py")
    places = set().union(*map(opening_places, modules))
    chosen = {
        place for place in places if not any(place == own or place.startswith(f"{own}.") for own in OWN)
    }
    assert chosen == set(CHOSEN)


MANAGER = """
import multiprocessing, os
if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        print(dict(manager.dict(a=1)), len(os.environ["TMPDIR"]) <= 75)
    os.system("echo x > .tmp/here; find $TMPDIR -name here | wc -l")
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_confined", [True, False])
def test_sockets_have_room_in_the_folder_for_temporary_files(
    place, make_context, make_job, monkeypatch, is_confined
):
    """However long the name of the pilot's folder is, and for each of the payloads of a warden."""
    if not is_confined:
        monkeypatch.setattr("lodesman.pilot.nursery._can_confine", lambda _: False)
    deep = place / ("d" * 90)
    deep.mkdir()
    neighbours = Neighbours(deep, make_context, make_job)
    if is_confined != neighbours.is_confined():
        neighbours.nursery.close()
        pytest.skip("payloads have no namespaces here")
    for _ in range(2):
        report, output = neighbours.play(sys.executable, "-u", "-c", MANAGER)
        assert report["state"] == "Done", report
        assert output["std.out"] == b"{'a': 1} True\n1\n"
    neighbours.nursery.close()
    links = [one for one in Path("/tmp").glob("lode-*") if one.is_symlink()]
    assert not any(str(one.readlink()).startswith(str(deep)) for one in links)
