"""Results on their way, and the journal of attempts: what is kept, in which order, and what is dropped."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from lodesman.errors import (
    Conflict,
    InvalidRequest,
    LodesmanError,
    NotFound,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from lodesman.pilot.journal import Journal
from lodesman.pilot.outbox import MOST_AT_ONCE, Outbox, without_output
from lodesman.pilot.protocol import Report


class Server:
    """Takes reports and archives; `faults` are raised first, one per request."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self.archives: list[tuple[str, str]] = []
        self.report_faults: list[LodesmanError] = []
        self.upload_faults: list[LodesmanError] = []
        self.stale: set[int] = set()
        self.away = False

    def report(self, records):
        if self.away:
            raise Unavailable("Away.")
        if self.report_faults:
            raise self.report_faults.pop(0)
        self.batches.append(records)
        return {
            "results": [
                {
                    "id": r["id"],
                    "attempt": r["attempt"],
                    "accepted": r["id"] not in self.stale,
                    "reason": "stale",
                }
                for r in records
            ]
        }

    def upload(self, path, file, sha256):
        if self.upload_faults:
            raise self.upload_faults.pop(0)
        self.archives.append((path, sha256))

    @property
    def reports(self):
        return [record for batch in self.batches for record in batch]


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def naps():
    return []


@pytest.fixture
def outbox(tmp_path, log, naps):
    made = Outbox(tmp_path / "outbox", delay=lambda failures: naps.append(failures) or 0.0, log=log)
    yield made
    made.close()


@pytest.fixture
def run(outbox, server):
    """Start both threads; they end with the outbox."""

    def start():
        threads = [
            threading.Thread(target=outbox.run_reports, args=(server.report,)),
            threading.Thread(target=outbox.run_uploads, args=(server.upload,)),
        ]
        for thread in threads:
            thread.start()

    return start


def done(number=1, state="Done", output=None, **more):
    return Report((number, 1), state, output=output, **more)


def archived(outbox, number=1):
    file = outbox.archive((number, 1))
    file.write_bytes(b"archive")
    return file


def test_a_report_arrives_and_nothing_stays(outbox, server, run, tmp_path):
    run()
    outbox.put(done(), None)
    assert outbox.wait_empty(60)
    assert [record["id"] for record in server.reports] == [1]
    assert list((tmp_path / "outbox").iterdir()) == []
    assert outbox.count() == 0


def test_the_archive_goes_first(outbox, server, run):
    file = archived(outbox)
    outbox.put(done(output=("ab", 7)), file)
    threading.Thread(target=outbox.run_reports, args=(server.report,), daemon=True).start()
    assert not outbox.wait_empty(0.05)
    assert server.reports == []
    threading.Thread(target=outbox.run_uploads, args=(server.upload,), daemon=True).start()
    assert outbox.wait_empty(60)
    assert server.archives == [("/v1/jobs/1/attempts/1/output", "ab")]
    assert server.reports[0]["output"] == {"sha256": "ab", "size": 7}
    assert not file.exists()


def test_many_reports_go_together(outbox, server, run):
    for number in range(MOST_AT_ONCE + 5):
        outbox.put(done(number), None)
    run()
    assert outbox.wait_empty(60)
    assert [len(batch) for batch in server.batches] == [MOST_AT_ONCE, 5]


def test_running_is_forgotten_when_the_end_is_known(outbox, server, run):
    outbox.put_running(Report((1, 1), "Running"))
    outbox.put_running(Report((2, 1), "Running"))
    assert outbox.keys() == []  # it is no end
    outbox.put(done(1), None)
    run()
    assert outbox.wait_empty(60)
    assert sorted((record["id"], record["state"]) for record in server.reports) == [
        (1, "Done"),
        (2, "Running"),
    ]


def test_a_server_that_is_away_is_asked_again(outbox, server, run, naps, tmp_path):
    server.report_faults = [Unavailable("Away."), LodesmanError("Broken."), Unauthorized("Who?")]
    server.upload_faults = [Unavailable("Away.")]
    outbox.put(done(output=("ab", 7)), archived(outbox))
    record = json.loads((tmp_path / "outbox/1.1.json").read_text())
    assert (record["id"], record["state"]) == (1, "Done")
    run()
    assert outbox.wait_empty(60)
    assert len(server.reports) == len(server.archives) == 1
    assert naps == [1, 1, 2, 3]


def test_hurry_ends_a_long_wait(outbox, server, run):
    outbox._delay = lambda failures: 1000.0
    server.report_faults = [Unavailable("Away."), Unavailable("Away.")]
    outbox.put(done(), None)
    run()
    assert not outbox.wait_empty(0.05)
    outbox.hurry()
    assert outbox.wait_empty(60)


def test_what_the_server_refuses_is_dropped_and_logged(outbox, server, run, lines):
    server.stale = {1}
    outbox.put(done(1), None)
    outbox.put(done(2), None)
    run()
    assert outbox.wait_empty(60)
    assert ("report-refused", {"job": "1.1", "reason": "stale"}) in lines


def test_one_bad_report_does_not_hold_up_the_others(outbox, server, run, lines):
    server.report_faults = [InvalidRequest("One of them."), InvalidRequest("This one.")]
    outbox.put(done(1), None)
    outbox.put(done(2), None)
    run()
    assert outbox.wait_empty(60)
    assert [record["id"] for record in server.reports] == [2]
    assert ("report-refused", {"job": "1.1", "reason": "This one."}) in lines


@pytest.mark.parametrize("fault", [Conflict("Stale."), NotFound("Gone."), TooLarge("Too much.")])
def test_a_refused_archive_is_said_in_the_report(outbox, server, run, fault):
    server.upload_faults = [fault]
    outbox.put(done(output=("ab", 7), message="Fine."), archived(outbox))
    run()
    assert outbox.wait_empty(60)
    record = server.reports[0]
    assert record["output"] is None
    assert record["message"] == f"Fine. The output was refused: {fault.message}"
    too_large = isinstance(fault, TooLarge)
    assert (record["state"], record["cause"]) == (("Failed", "output-limit") if too_large else ("Done", "ok"))


def test_a_failure_keeps_its_cause_when_its_archive_is_refused():
    record = without_output(done(state="Failed", cause="exit").as_json(), TooLarge("Too much."))
    assert (record["state"], record["cause"]) == ("Failed", "exit")


def test_unsent_results_stay_on_disk_when_it_is_closed(outbox, server, run, tmp_path):
    server.away = True
    outbox.put(done(), None)
    run()
    assert not outbox.wait_empty(0.05)
    outbox.close()
    assert (tmp_path / "outbox/1.1.json").exists()
    assert outbox.keys() == [(1, 1)]


def test_a_full_disk_loses_no_report(outbox, server, run, lines, tmp_path):
    (tmp_path / "outbox/1.1.json").mkdir()  # cannot be written
    outbox.put(done(1), None)
    assert lines[0][0] == "outbox-disk"
    (tmp_path / "outbox/1.1.json").rmdir()
    run()
    assert outbox.wait_empty(60)
    assert len(server.reports) == 1


# --- the journal ------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path):
    opened = []

    def open_it() -> Journal:
        opened.append(Journal(tmp_path / "journal"))
        return opened[-1]

    yield open_it
    for one in opened:
        one.close()


def test_an_attempt_is_taken_once(journal, make_job):
    book = journal()
    one, again, other = make_job(1), make_job(1), make_job(1, attempt=2)
    assert book.take([one, again, other]) == [again, other]
    assert book.take([one, other]) == []
    assert (1, 1) in book
    assert (1, 3) not in book


def test_also_by_a_later_process(journal, make_job, tmp_path):
    journal().take([make_job(1), make_job(2)])
    assert (tmp_path / "journal").read_text() == "1.1\n2.1\n"
    assert journal().take([make_job(2), make_job(3)]) == [make_job(3)]


def test_a_line_that_was_cut_does_not_count(journal, make_job, tmp_path):
    (tmp_path / "journal").write_bytes(b"1.1\njunk\n\xff\n12.")
    book = journal()
    assert book.take([make_job(1)]) == []
    assert book.take([make_job(12)]) == [make_job(12)]
    assert journal().take([make_job(12)]) == []


def test_a_disk_that_fails_takes_nothing(make_job, tmp_path):
    book = Journal(tmp_path / "journal")
    book.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        book.take([make_job(1)])
    assert (1, 1) not in book
