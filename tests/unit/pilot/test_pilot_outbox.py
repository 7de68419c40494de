"""Results on their way, and the journal of attempts: what is kept, in which order, and what is dropped."""

from __future__ import annotations

import errno
import json
import os
import queue
import threading
from typing import Any

import pytest

from lodesman.base.errors import (
    Conflict,
    InvalidRequest,
    LodesmanError,
    NotFound,
    StorageFull,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from lodesman.pilot.outbox import _MAX_BATCH, _TOGETHER_S, Outbox, _without_output
from lodesman.pilot.protocol import AttemptKey, PayloadReport
from lodesman.pilot.server_threads import _AttemptJournal
from lodesman.wire.client.exchange import local_fault

OUTPUT = {"sha256": "ab", "size": 7}


class Server:
    """Takes reports and archives; `faults` are raised first, one per request."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self.archives: list[tuple[str, str]] = []
        self.report_faults: list[LodesmanError] = []
        self.upload_faults: list[LodesmanError] = []
        self.stale: set[int] = set()
        self.away = False
        self.no_space = False
        self.refused = threading.Semaphore(0)

    def client(self):
        return None

    def report(self, client, records):
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

    def upload(self, client, path, file, sha256):
        if self.no_space:
            self.refused.release()
            raise StorageFull("Full.")
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
def outbox(context):
    made = Outbox(context)
    yield made
    made.close()


@pytest.fixture
def run(outbox, server):
    """Start both threads; they end with the outbox."""

    def start():
        threads = [
            threading.Thread(target=outbox.run_reports, args=(server, lambda: None)),
            threading.Thread(target=outbox.run_uploads, args=(server,)),
        ]
        for thread in threads:
            thread.start()

    return start


def done(number=1, state="Done", output=None, **more):
    return PayloadReport(AttemptKey(number, 1), state, output=output, **more)


def archived(outbox, number=1):
    file = outbox.archive(AttemptKey(number, 1))
    file.write_bytes(b"archive")
    return file


def test_a_report_arrives_and_nothing_stays(outbox, server, run, tmp_path):
    run()
    outbox.put(done())
    assert outbox.wait_empty(60)
    assert [record["id"] for record in server.reports] == [1]
    assert list((tmp_path / "outbox").iterdir()) == []
    assert outbox.keys() == []


def test_the_archive_goes_first(outbox, server, run):
    file = archived(outbox)
    outbox.put(done(output=OUTPUT), file)
    threading.Thread(target=outbox.run_reports, args=(server, lambda: None), daemon=True).start()
    assert not outbox.wait_empty(0.05)
    assert server.reports == []
    threading.Thread(target=outbox.run_uploads, args=(server,), daemon=True).start()
    assert outbox.wait_empty(60)
    assert server.archives == [("/v1/jobs/1/attempts/1/output", "ab")]
    assert server.reports[0]["output"] == {"sha256": "ab", "size": 7}
    assert not file.exists()


def test_many_reports_go_together(outbox, server, run):
    for number in range(_MAX_BATCH + 5):
        outbox.put(done(number))
    run()
    assert outbox.wait_empty(60)
    assert [len(batch) for batch in server.batches] == [_MAX_BATCH, 5]


def test_what_can_wait_goes_with_the_next_that_cannot(outbox, server, run):
    """The clock stands still: alone it would never be sent."""
    run()
    outbox.put(done(1), can_wait=True)
    assert not outbox.wait_empty(0.05)
    outbox.put(done(2))
    assert outbox.wait_empty(60)
    assert [[record["id"] for record in batch] for batch in server.batches] == [[1, 2]]


def test_what_can_wait_waits_for_no_archive(outbox, server, monkeypatch):
    """An upload may take long, and be tried again for long."""
    waits: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    wait = outbox._changed.wait
    monkeypatch.setattr(outbox._changed, "wait", lambda timeout=None: waits.put(timeout) or wait(timeout))
    outbox.put(done(1, output=OUTPUT), archived(outbox))  # no thread uploads it
    threading.Thread(target=outbox.run_reports, args=(server, lambda: None), daemon=True).start()
    assert waits.get(timeout=60) is None
    outbox.put(done(2), can_wait=True)
    assert waits.get(timeout=60) == pytest.approx(_TOGETHER_S)


@pytest.mark.parametrize("end", ["time", "hurry", "many"])
def test_what_can_wait_is_sent_at_last(outbox, server, run, clock, end):
    outbox.put(done(1), can_wait=True)
    if end == "time":
        clock.now += 0.06
    if end == "many":
        for number in range(2, _MAX_BATCH + 1):
            outbox.put(done(number), can_wait=True)
    if end == "hurry":
        outbox.hurry()
    run()
    assert outbox.wait_empty(60)
    assert len(server.batches) == 1


def test_the_server_may_say_that_others_wait(outbox, server):
    asked = threading.Event()
    answer = server.report
    server.report = lambda client, records: {**answer(client, records), "others_wait": True}
    threading.Thread(target=outbox.run_reports, args=(server, asked.set), daemon=True).start()
    outbox.put(done())
    assert asked.wait(60)
    outbox.close()


def test_running_is_dropped_when_the_end_is_known(outbox, server, run):
    outbox.put(done(1, "Running"))
    outbox.put(done(2, "Running"))
    assert outbox.keys() == []  # it is no end
    outbox.put(done(1))
    run()
    assert outbox.wait_empty(60)
    assert sorted((record["id"], record["state"]) for record in server.reports) == [
        (1, "Done"),
        (2, "Running"),
    ]


def test_an_end_that_is_replaced_counts_once(outbox, server, run):
    outbox.put(done(1))
    outbox.put(done(1, "Failed"))
    assert (outbox.count(), outbox.keys()) == (1, [AttemptKey(1, 1)])
    run()
    assert outbox.wait_empty(60)
    assert outbox.count() == 0


def started(lines):
    return [facts["jobs"] for event, facts in lines if event == "payload-started"]


def test_each_payload_that_started_is_logged_once_by_the_request(outbox, server, run, lines):
    for number in (1, 2):
        outbox.put(done(number, "Running"))
    outbox.put(done(1))
    outbox.put(done(3, "Released"))  # it never started
    run()
    assert outbox.wait_empty(60)
    outbox.put(done(2))
    assert outbox.wait_empty(60)
    assert started(lines) == [["2.1", "1.1"]]


def test_an_end_that_overtakes_the_answer_about_its_start_is_logged_with_it(outbox, server, lines):
    answer = server.report

    def report(client, records):
        if records[0]["state"] == "Running":
            outbox.put(done())
        return answer(client, records)

    server.report = report
    outbox.put(done(1, "Running"))
    threading.Thread(target=outbox.run_reports, args=(server, lambda: None), daemon=True).start()
    assert outbox.wait_empty(60)
    assert [record["state"] for record in server.reports] == ["Running", "Done"]
    assert started(lines) == [["1.1"]]


def test_a_server_that_is_away_is_asked_again(outbox, server, run, context, tmp_path):
    server.report_faults = [Unavailable("Away."), LodesmanError("Broken."), Unauthorized("Who?")]
    server.upload_faults = [Unavailable("Away.")]
    outbox.put(done(output=OUTPUT), archived(outbox))
    run()
    assert outbox.wait_empty(60)
    assert len(server.reports) == len(server.archives) == 1
    assert list((tmp_path / "outbox").iterdir()) == []
    assert context.delays == [1, 1, 2, 3]


def test_hurry_ends_a_long_wait(outbox, server, run):
    outbox._delay = lambda failures: 1000.0
    server.report_faults = [Unavailable("Away."), Unavailable("Away.")]
    outbox.put(done())
    run()
    assert not outbox.wait_empty(0.05)
    outbox.hurry()
    assert outbox.wait_empty(60)


def test_what_the_server_refuses_is_dropped_and_logged(outbox, server, run, lines):
    server.stale = {1}
    outbox.put(done(1))
    outbox.put(done(2))
    run()
    assert outbox.wait_empty(60)
    assert ("report-refused", {"job": "1.1", "reason": "stale"}) in lines


def test_one_bad_report_does_not_hold_up_the_others(outbox, server, run, lines):
    server.report_faults = [InvalidRequest("One of them."), InvalidRequest("This one.")]
    outbox.put(done(1))
    outbox.put(done(2))
    run()
    assert outbox.wait_empty(60)
    assert [record["id"] for record in server.reports] == [2]
    assert ("report-refused", {"job": "1.1", "reason": "This one."}) in lines


@pytest.mark.parametrize("fault", [Conflict("Stale."), NotFound("Gone."), TooLarge("Too much.")])
def test_a_refused_archive_is_noted_in_the_report(outbox, server, run, fault):
    server.upload_faults = [fault]
    outbox.put(done(output=OUTPUT, message="Fine."), archived(outbox))
    run()
    assert outbox.wait_empty(60)
    record = server.reports[0]
    assert record["output"] == OUTPUT, "the server knows that it has none, and that there was one"
    assert record["message"] == f"Fine. The output was refused: {fault.message}"
    too_large = isinstance(fault, TooLarge)
    assert (record["state"], record["cause"]) == (("Failed", "output-limit") if too_large else ("Done", "ok"))


def test_an_archive_that_finds_no_space_is_sent_again_and_others_go_first(outbox, server, run, lines):
    outbox._delay = lambda failures: 0.0
    server.upload_faults = [StorageFull("Full.")] * 3
    outbox.put(done(1, output=OUTPUT), file := archived(outbox, 1))
    run()
    outbox.put(done(2, output=OUTPUT), archived(outbox, 2))
    assert outbox.wait_empty(60)
    assert {(one["id"], one["state"], one["cause"]) for one in server.reports} == {
        (1, "Done", "ok"),
        (2, "Done", "ok"),
    }
    assert (len(server.archives), file.exists(), outbox.held_up()) == (2, False, 0)
    assert sum(name == "output-held-up" for name, _ in lines) == 3


@pytest.mark.parametrize(
    ("state", "cause", "becomes"), [("Done", "ok", "storage-full"), ("Failed", "exit", "exit")]
)
def test_a_job_that_ran_keeps_its_outcome_when_no_space_comes_until_the_end(
    outbox, server, run, state, cause, becomes
):
    server.no_space = True
    outbox.put(done(state=state, cause=cause, output=OUTPUT), file := archived(outbox))
    run()
    assert server.refused.acquire(timeout=60)
    assert (server.reports, file.exists()) == ([], True)
    outbox.hurry()
    assert outbox.wait_empty(60)
    (record,) = server.reports
    assert (record["state"], record["cause"], record["output"]) == (state, becomes, OUTPUT)
    assert record["message"] == "The storage of the server was full until its pilot ended: Full."
    assert not file.exists()


def test_a_hundred_archives_without_space_keep_no_thread_busy(outbox, server, run):
    outbox._delay = lambda failures: 1_000.0
    server.no_space = True
    for number in range(_MAX_BATCH + 1):
        outbox.put(done(number, output=OUTPUT), archived(outbox, number))
    run()
    assert all(server.refused.acquire(timeout=60) for _ in range(_MAX_BATCH + 1))
    assert not server.refused.acquire(timeout=0.01), "none is due again"
    assert outbox.held_up() == _MAX_BATCH + 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOENT, errno.EACCES])
def test_an_archive_that_cannot_be_read_any_more_holds_up_no_other(outbox, server, run, lines, number):
    outbox.put(done(1, output=OUTPUT), file := archived(outbox, 1))
    outbox.put(done(2, output=OUTPUT), archived(outbox, 2))
    file.unlink()  # what cannot be read may not be removable, either
    file.mkdir()
    fault, take = local_fault(OSError(number, "gone"), file), server.upload

    def upload(client, path, archive, sha256):
        if archive == file:
            raise fault
        take(client, path, archive, sha256)

    server.upload = upload
    run()
    assert outbox.wait_empty(60)
    reports = {one["id"]: one for one in server.reports}
    assert (reports[1]["state"], reports[2]["message"], len(server.archives)) == ("Done", "", 1)
    assert reports[1]["message"] == f"The pilot cannot read the output any more: {os.strerror(number)}."
    assert ("output-lost", {"job": "1.1", "fault": fault.message}) in lines


@pytest.mark.parametrize(
    "fault", [local_fault(OSError(errno.EMFILE, "too many")), Unavailable("Away."), LodesmanError("Broken.")]
)
def test_an_archive_that_is_sent_again_lets_others_go_first(outbox, server, run, clock, fault):
    server.upload_faults = [fault]
    for number in (1, 2):
        clock.now += 1
        outbox.put(done(number, output=OUTPUT), archived(outbox, number))
    clock.now += 1
    run()
    assert outbox.wait_empty(60)
    assert [path.split("/")[3] for path, _ in server.archives] == ["2", "1"]


def test_a_pilot_that_goes_on_after_all_keeps_what_finds_no_space(outbox, server, run):
    outbox._delay = lambda failures: 0.0
    outbox.hurry()
    outbox.hurry(on=False)
    server.no_space = True
    outbox.put(done(output=OUTPUT), archived(outbox))
    run()
    assert all(server.refused.acquire(timeout=60) for _ in range(2))
    assert (server.reports, outbox.held_up()) == ([], 1)


def test_a_failure_keeps_its_cause_when_its_archive_is_refused():
    report = _without_output(done(state="Failed", cause="exit"), TooLarge("Too much."))
    assert (report.state, report.cause) == ("Failed", "exit")


def test_unsent_results_stay_on_disk_when_it_is_closed(outbox, server, run, tmp_path):
    server.away = True
    outbox.put(done())
    run()
    assert not outbox.wait_empty(0.05)
    outbox.close()
    record = json.loads((tmp_path / "outbox/1.1.json").read_text())
    assert (record["id"], record["state"]) == (1, "Done")
    assert outbox.keys() == [(1, 1)]


def test_a_full_disk_loses_no_report(outbox, server, run, lines, tmp_path):
    (tmp_path / "outbox/1.1.json").mkdir()  # cannot be written
    server.report_faults = [Unavailable("Away.")]
    outbox.put(done(1))
    run()
    assert outbox.wait_empty(60)
    assert "outbox-disk" in [event for event, _ in lines]
    assert len(server.reports) == 1


# --- the journal ------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path):
    return lambda: _AttemptJournal(tmp_path / "journal")


def test_an_attempt_is_taken_once(journal, make_job):
    book = journal()
    one, again, other = make_job(1), make_job(1), make_job(1, attempt=2)
    assert book.take([one, again, other]) == [again, other]
    assert book.take([one, other]) == []
    assert book.take([make_job(1), make_job(1, attempt=3)]) == [make_job(1, attempt=3)]


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
    book = _AttemptJournal(tmp_path / "journal")
    os.close(book._descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        book.take([make_job(1)])
    assert (1, 1) not in book._seen
