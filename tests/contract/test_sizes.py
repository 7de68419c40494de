"""What the files of users take: counted from the shelf and the rows once a day, and corrected."""

from __future__ import annotations

import hashlib
import logging

import pytest
from tests.contract.test_reconciler import CLEAN, spoil
from tests.contract.test_tidy import Uploads

from lodesman.server.loops import reconciler
from lodesman.server.loops.reconciler import find_wrong_sizes
from lodesman.server.store.journal import Change
from lodesman.server.store.sandboxes import note_uploads, usage_of
from lodesman.server.store.write.attempts import NOT_KEPT
from lodesman.server.writer.upkeep import reconcile

ARCHIVE = b"results"  # as `Uploads` stores them
SHA = hashlib.sha256(ARCHIVE).hexdigest()


@pytest.fixture
def uploads(house):
    """Two jobs that have handed in an output each, one that sent it with its report, and two input files."""
    uploads, pilot = Uploads(house), house.pilot()
    house.submit(3)
    for claimed in house.claim(pilot, 3):
        if claimed.job_id < 3:
            uploads.output(claimed.job_id)
            house.upload(pilot, claimed, SHA, len(ARCHIVE))
            house.report(pilot, claimed)
        else:
            house.report(pilot, claimed, output_sha256="ab", output=b"x" * 5_000)
    uploads.put("one")
    uploads.put("two" * 2_000)
    return uploads


def mend(house, uploads):
    """What a pass corrects."""
    found = {}
    for suspects in find_wrong_sizes(house.reader, uploads.shelf):
        done = house.do(Change(reconcile, house.live, suspects))
        for name in ("wrong_outputs", "wrong_usage"):
            found[name] = found.get(name, 0) + getattr(done, name)
    return {name: number for name, number in found.items() if number}


def test_what_is_right_is_left_alone(house, uploads, monkeypatch):
    monkeypatch.setattr(reconciler, "_OUTPUTS_AT_ONCE", 1)
    before = usage_of(house.reader, "ann")
    assert before == (2, 4_096 + 6_000, 2 * 4_096 + 5_000)
    assert mend(house, uploads) == {}
    assert usage_of(house.reader, "ann") == before
    assert {"wrong_outputs", "wrong_usage"} <= CLEAN.keys()


@pytest.mark.parametrize("wrong", ["files = 9", "bytes = 1", "outputs = 9007199254740992", "outputs = 0"])
def test_a_wrong_sum_is_corrected_and_said(house, uploads, wrong, caplog):
    before = usage_of(house.reader, "ann")
    spoil(house, f"UPDATE sandbox_usage SET {wrong}")
    with caplog.at_level(logging.ERROR):
        assert mend(house, uploads) == {"wrong_usage": 1}
    assert "what the files of a user take was wrong" in caplog.text
    assert usage_of(house.reader, "ann") == before
    assert mend(house, uploads) == {}


def test_a_size_that_only_a_pilot_named_is_corrected_by_the_file(house, uploads):
    """Releases before believed it."""
    before = usage_of(house.reader, "ann")
    spoil(house, "UPDATE attempt SET output_size = 9007199254740992 WHERE job_id = 1")
    assert usage_of(house.reader, "ann").outputs > 1 << 52
    assert mend(house, uploads) == {"wrong_outputs": 1}
    assert (usage_of(house.reader, "ann"), house.job(1).output_size) == (before, len(ARCHIVE))


def test_an_output_that_is_larger_than_any_and_is_not_there_takes_nothing(house, uploads):
    spoil(house, "UPDATE attempt SET output_size = 9007199254740992 WHERE job_id = 1")
    uploads.shelf.output_path(1, 1).unlink()
    assert mend(house, uploads) == {"wrong_outputs": 1}
    assert (house.job(1).output_size, house.job(1).output_sha256) == (None, "")
    assert usage_of(house.reader, "ann").outputs == 4_096 + 5_000


def test_a_file_that_is_not_there_may_be_back_soon(house, uploads):
    """A disk that is not mounted is no reason to forget what lies on it."""
    uploads.shelf.output_path(1, 1).unlink()
    spoil(house, "UPDATE attempt SET output_size = 9007199254740992 WHERE job_id = 2")
    uploads.shelf.root.rename(uploads.shelf.root.with_name("elsewhere"))
    assert mend(house, uploads) == {}


def test_a_sum_that_changed_while_it_was_counted_is_left_for_the_next_time(house, uploads):
    spoil(house, "UPDATE sandbox_usage SET outputs = 1 << 50")
    found = []
    for suspects in find_wrong_sizes(house.reader, uploads.shelf):
        found.append(suspects.usage)
        uploads.put(f"file {len(found)}")
    assert not any(found)


def test_a_correction_that_comes_too_late_changes_nothing(house, uploads):
    spoil(house, "UPDATE sandbox_usage SET outputs = 7")
    (last,) = [one for one in find_wrong_sizes(house.reader, uploads.shelf) if one.usage]
    uploads.put("another")
    assert house.do(Change(reconcile, house.live, last)).wrong_usage == 0


def test_an_output_that_was_stored_and_not_noted_is_found_at_the_start(house):
    """The server was killed between the two, or was of a release that noted it with the report."""
    uploads, pilot = Uploads(house), house.pilot()
    house.submit(3)
    first, second, third = house.claim(pilot, 3)
    uploads.output(first.job_id)
    uploads.output(third.job_id)
    house.upload(pilot, third, SHA, len(ARCHIVE))
    assert note_uploads(house.writer, uploads.shelf) == 1
    assert note_uploads(house.writer, uploads.shelf) == 0
    house.restart()
    for claimed in (first, second):
        house.report(pilot, claimed, output_sha256=SHA)
    kept = [house.job(claimed.job_id).output_sha256 for claimed in (first, second)]
    assert kept == [SHA, NOT_KEPT]
    assert usage_of(house.reader, "ann").outputs == 2 * 4_096
