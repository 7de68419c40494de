"""Input files on a real database and disk: there as long as a job needs them, with a time of grace, and no longer."""

import asyncio
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lodesman.base.errors import InvalidJob, TooLarge
from lodesman.server.loops.retention import DAY
from lodesman.server.store.journal import Change
from lodesman.server.store.sandboxes import tidy_inputs, uploaded_size, usage_of
from lodesman.server.store.shelf import Shelf
from lodesman.server.writer.submit import register_input
from lodesman.wire.service import UnusedInputs

KEEP = 10.0
MB = 1 << 20


class Uploads:
    """The shelf beside a house; the disk's clock is the house's."""

    def __init__(self, house):
        self.house = house
        self.shelf = Shelf(house.database.beside("db").with_name("sandboxes"), limit_bytes=10_000)

    def put(self, text, owner="ann", *, register=True):
        """Upload as a client does; the checksum."""
        content = text.encode()
        sha = hashlib.sha256(content).hexdigest()
        if uploaded_size(self.house.reader, owner, sha, to_stay=True) is None:
            path = self.shelf.input_path(owner, sha)
            asyncio.run(self.shelf.store(parts(content), path, sha))
            os.utime(path, (self.house.clock, self.house.clock))
            if register:
                self.house.do(Change(register_input, owner, sha, len(content)))
        return sha

    def output(self, job_id, attempt=1):
        path = self.shelf.output_path(job_id, attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"results")
        return path

    def tidy(self, keep=KEEP):
        """A complete run of a background process that has just started."""
        found = self.house.retention(keep, self.shelf)
        for _ in found.run(self.house.clock):
            pass
        return found.done

    def files(self):
        return sorted(path.name for path in self.shelf.root.rglob("*") if path.is_file())

    def rows(self):
        return sorted(row[0] for row in self.house.reader.execute("SELECT sha256 FROM sandbox"))


async def parts(content):
    yield content


@pytest.fixture
def uploads(house):
    return Uploads(house)


def later(house, days):
    house.clock += days * DAY


def body(*shas):
    return '{"input":[' + ",".join(f'{{"sha256":"{sha}"}}' for sha in shas) + "]}"


@pytest.mark.slow
def test_a_file_that_a_job_names_stays_as_long_as_the_job(house, uploads):
    sha = uploads.put("data")
    house.submit(inputs=[sha], body=body(sha))
    for _ in range(5):
        later(house, 30)
        uploads.tidy()
    house.control("kill", 1)
    later(house, KEEP - 1)
    uploads.tidy()
    assert (uploads.files(), uploads.rows()) == ([sha], [sha])
    later(house, 2)
    assert uploads.tidy()["jobs"] == 1  # from now on nothing names it
    later(house, 0.9)
    uploads.tidy()
    assert uploads.files() == [sha]
    later(house, 0.2)
    assert uploads.tidy() == {"inputs": 1}
    assert (uploads.files(), uploads.rows()) == ([], [])
    assert usage_of(house.reader, "ann").bytes == 0


def test_a_file_that_nothing_ever_named_goes_even_if_jobs_are_kept_for_ever(house, uploads):
    uploads.put("data")
    later(house, 1.1)
    uploads.tidy(keep=0)
    assert len(uploads.files()) == 1  # marked: a client that has asked for it may still submit
    later(house, 1.1)
    assert uploads.tidy(keep=0) == {"inputs": 1}
    assert uploads.files() == []


def test_a_file_is_not_marked_while_its_upload_is_fresh(house, uploads):
    sha = uploads.put("data")
    later(house, 0.9)
    uploads.tidy()
    assert uploaded_size(house.reader, "ann", sha, to_stay=True) == 4


def test_a_marked_file_that_is_uploaded_again_stays(house, uploads):
    sha = uploads.put("data")
    later(house, 1.1)
    uploads.tidy()
    assert uploaded_size(house.reader, "ann", sha) == 4
    assert uploaded_size(house.reader, "ann", sha, to_stay=True) is None
    later(house, 0.9)
    uploads.put("data")
    assert usage_of(house.reader, "ann").files == 1
    later(house, 0.9)
    uploads.tidy()
    assert uploads.files() == [sha]
    house.submit(inputs=[sha], body=body(sha))
    later(house, 100)
    uploads.tidy()
    assert uploads.files() == [sha]


def test_a_job_that_names_a_marked_file_takes_the_mark_off(house, uploads):
    """Its client had asked before."""
    sha = uploads.put("data")
    later(house, 1.1)
    uploads.tidy()
    house.submit(inputs=[sha], body=body(sha))
    later(house, 2)
    uploads.tidy()
    assert uploaded_size(house.reader, "ann", sha, to_stay=True) == 4
    assert uploads.files() == [sha]


def test_a_job_whose_file_has_just_gone_is_refused(house, uploads):
    sha, other = uploads.put("data"), uploads.put("more")
    later(house, 1.1)
    uploads.tidy()
    later(house, 1.1)
    uploads.put("more")
    uploads.tidy()
    with pytest.raises(InvalidJob, match="Submit again"):
        house.submit(inputs=[other, sha], body=body(other, sha))
    assert house.counts() == {}
    house.submit(inputs=[other], body=body(other))


def test_a_file_is_removed_only_if_it_was_not_stored_again(house, uploads):
    """The row goes, another upload comes, and then the file of the row would be removed."""
    sha = uploads.put("data")
    later(house, 1.1)
    uploads.tidy()
    later(house, 1.1)
    removed = house.do(Change(tidy_inputs, UnusedInputs(before=house.clock - DAY, remove=[("ann", sha)])))
    assert removed == [("ann", sha)]
    uploads.put("data")
    for owner, gone in removed:
        uploads.shelf.remove_older(uploads.shelf.input_path(owner, gone), house.clock - DAY)
    assert (uploads.files(), uploads.rows()) == ([sha], [sha])


def test_marks_and_removals_are_checked_again(house, uploads):
    sha = uploads.put("data")
    house.submit(inputs=[sha], body=body(sha))
    later(house, 5)
    key = ("ann", sha)
    assert house.do(Change(tidy_inputs, UnusedInputs(before=house.clock, mark=[key], remove=[key]))) == []
    assert uploaded_size(house.reader, "ann", sha, to_stay=True) == 4
    other = uploads.put("fresh")
    marked = uploads.put("marked")
    later(house, 1.1)
    house.do(Change(tidy_inputs, UnusedInputs(before=house.clock, mark=[("ann", marked)])))
    assert (
        house.do(
            Change(
                tidy_inputs, UnusedInputs(before=house.clock - DAY, remove=[("ann", marked), ("ann", other)])
            )
        )
        == []
    )
    house.do(Change(register_input, "ann", other, 5))
    house.do(
        Change(
            tidy_inputs,
            UnusedInputs(before=house.clock - DAY, mark=[("ann", other)], unmark=[("ann", other)]),
        )
    )
    assert uploaded_size(house.reader, "ann", other, to_stay=True) == 5


def test_files_of_two_owners_are_two(house, uploads):
    sha = uploads.put("data")
    assert uploads.put("data", "bob") == sha
    house.submit(inputs=[sha], body=body(sha))
    for _ in range(2):
        later(house, 1.1)
        uploads.tidy()
    assert uploads.files() == [sha]
    assert house.reader.only("SELECT owner FROM sandbox") == ("ann",)


def test_deleted_jobs_need_their_files_no_more(house, uploads):
    sha = uploads.put("data")
    house.submit(3, inputs=[sha], body=body(sha))
    house.control("delete", 1, 2)
    for _ in range(3):
        later(house, 1.1)
        uploads.tidy()
    assert uploads.files() == [sha]
    house.control("delete", 3)
    for _ in range(2):
        later(house, 1.1)
        uploads.tidy()
    assert uploads.files() == []
    assert house.state(3) == "Deleted"


def test_of_a_batch_each_job_keeps_its_own_files(house, uploads):
    shas = [uploads.put(text) for text in ("one", "two", "both")]
    house.batch([body(shas[0], shas[2]), body(shas[1], shas[2])], inputs=shas)
    house.control("kill", 1)
    house.control("hold", 2)
    later(house, KEEP + 1)
    for _ in range(3):
        uploads.tidy()
        later(house, 1.1)
    assert uploads.files() == sorted(shas[1:])


def test_very_many_files_are_gone_through_in_portions(house, uploads, monkeypatch):
    monkeypatch.setattr("lodesman.server.loops.retention._FILES_AT_ONCE", 3)
    kept = [uploads.put(f"kept {n}") for n in range(4)]
    for n in range(10):
        uploads.put(f"gone {n}")
    house.submit(inputs=kept, body=body(*kept))
    for _ in range(2):
        later(house, 1.1)
        uploads.tidy()
    assert uploads.files() == sorted(kept)
    assert usage_of(house.reader, "ann").files == 4
    house.control("delete", 1)
    for _ in range(2):
        later(house, 1.1)
        uploads.tidy()
    assert uploads.files() == []


# --- outputs, and files that nothing knows -----------------------------------------------------------------


def test_outputs_go_with_their_job(house, uploads):
    pilot = house.pilot()
    house.submit(2)
    for state, cause in (("Released", "input"), ("Done", "ok"), ("Done", "ok")):
        (claimed,) = house.claim(pilot)
        uploads.output(claimed.job_id, claimed.attempt)
        house.report(pilot, claimed, state, cause=cause)
    assert len(uploads.files()) == 3
    later(house, KEEP - 1)
    house.control("delete", 1)
    later(house, 2)
    uploads.tidy()
    assert uploads.files() == ["1.1.tar.gz", "1.2.tar.gz"]
    later(house, KEEP)
    uploads.tidy()
    assert uploads.files() == []


def test_what_a_killed_process_left_is_found(house, uploads):
    house.submit()
    kept = uploads.output(1)
    lost = [uploads.output(2), uploads.output(5_001, 3)]
    strange = uploads.shelf.root / "out" / "0" / "notes.txt"
    strange.write_text("not ours")
    sha = uploads.put("never announced", register=False)
    part = uploads.shelf.input_path("ann", "x" * 64).with_name(f".{'x' * 64}.0123")
    part.write_bytes(b"half")
    os.utime(part, (house.clock, house.clock))
    assert uploads.tidy() == {"lost_files": 2}
    assert not any(path.exists() for path in lost)
    assert part.exists()  # it may still be coming
    assert sha in uploads.files()
    later(house, 1.1)
    assert uploads.tidy() == {"lost_files": 2}
    assert uploads.files() == sorted([kept.name, strange.name])


def test_folders_of_outputs_that_can_hold_no_more_are_removed(house, uploads):
    house.submit(2_500)
    out = uploads.shelf.root / "out"
    for job_id in (1, 1_001, 2_001):
        uploads.output(job_id)
    (out / "notes").mkdir()
    pilot = house.pilot()
    house.control("kill", 2_001, 2_500)
    (claimed,) = house.claim(pilot)
    house.control("kill", 2, 2_000)
    later(house, KEEP + 1)
    uploads.tidy()
    assert sorted(path.name for path in out.iterdir()) == [
        "0",
        "2",
        "notes",
    ]  # the ids of 2 are not all given out
    assert uploads.files() == ["1.1.tar.gz"]
    house.report(pilot, claimed)
    later(house, KEEP + 1)
    uploads.tidy()
    uploads.tidy()
    assert sorted(path.name for path in out.iterdir()) == ["2", "notes"]


def test_files_of_an_unknown_owner_are_found(house, uploads):
    uploads.put("data", "bob", register=False)
    later(house, 1.1)
    assert uploads.tidy() == {"lost_files": 1}
    assert uploads.files() == []


def test_the_shelf_is_swept_once_a_day(house, uploads):
    found, now = house.retention(KEEP, uploads.shelf), [0.0]
    found.ticker = lambda: now[0]
    for hours, there in ((0, []), (1, ["9.1.tar.gz"]), (23.1, [])):
        uploads.output(9)
        now[0] += hours * 3_600
        for _ in found.run(house.clock):
            pass
        assert uploads.files() == there


KILLED = """
import os, pickle, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.contract.conftest import House
house = House(pickle.loads({database!r}))
house.clock = {clock!r}
Path.unlink = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
for _ in house.retention({keep!r}).run(house.clock):
    pass
"""


@pytest.mark.slow
def test_killed_between_the_commit_and_the_removal(house, uploads):
    """Really: kill -9 at the first file that would be removed."""
    pilot = house.pilot()
    house.submit(3)
    for claimed in house.claim(pilot, 3):
        uploads.output(claimed.job_id)
        house.report(pilot, claimed)
    later(house, KEEP + 1)
    database, clock = house.database, house.clock
    house.close()
    root = str(Path(__file__).parents[2])
    script = KILLED.format(root=root, database=pickle.dumps(database), clock=clock, keep=KEEP)
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    house.__init__(database)
    house.clock = clock
    assert house.job(1) is None
    assert len(uploads.files()) == 3
    assert uploads.tidy()["lost_files"] == 3
    assert uploads.files() == []


# --- quota -------------------------------------------------------------------------------------------------


def test_a_quota_is_kept_to_the_byte(house):
    quota = 3 * MB
    house.do(Change(register_input, "ann", "a", 2 * MB, quota=quota))
    house.do(Change(register_input, "bob", "a", 3 * MB, quota=quota))
    with pytest.raises(TooLarge) as refused:
        house.do(Change(register_input, "ann", "b", MB + 1, quota=quota))
    assert "would take 3.0 MB: 2.0 MB are there, 3.0 MB allowed" in refused.value.message
    assert "lode delete" in refused.value.hint
    assert refused.value.data == {"limit": quota, "used": 2 * MB, "size": MB + 1}
    house.do(Change(register_input, "ann", "b", MB, quota=quota))
    house.do(Change(register_input, "ann", "b", MB, quota=quota))  # it is there already
    assert (usage_of(house.reader, "ann").files, usage_of(house.reader, "ann").bytes) == (2, quota)
    house.do(Change(register_input, "ann", "c", MB))
    assert usage_of(house.reader, "eve").bytes == 0


def test_what_is_removed_counts_no_more(house, uploads):
    uploads.put("x" * 1_000)
    for _ in range(2):
        later(house, 1.1)
        uploads.tidy()
    assert (usage_of(house.reader, "ann").files, usage_of(house.reader, "ann").bytes) == (0, 0)
    house.do(Change(register_input, "ann", "b", 1_000, quota=4_096))
