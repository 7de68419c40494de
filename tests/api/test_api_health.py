"""Is the server well, and what does it count: /health and /metrics."""

from __future__ import annotations

import math
from collections import Counter

import apsw
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lodesman.base.errors import Conflict, Unavailable
from lodesman.decide.director.limits import Breaker
from lodesman.server.http.health import UpkeepFigures
from lodesman.server.store.director import put_breakers
from lodesman.server.store.journal import Change
from lodesman.wire import inner_calls
from lodesman.wire.call import encode
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import BackgroundState, StoredBreaker, Suspects
from lodesman.wire.vocabulary import BreakerState, StartFault


def scrape(house, token="admin"):
    answer = house.call("GET", "/metrics", token=token)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.body.decode()))
    samples = [sample for family in families for sample in family.samples]
    twice = Counter((one.name, tuple(sorted(one.labels.items()))) for one in samples).most_common(1)
    assert twice[0][1] == 1, "a scraper refuses a text that has one series twice"
    assert all(family.documentation for family in families)
    assert all(math.isfinite(one.value) for one in samples)
    return {(one.name, *sorted(one.labels.items())): one.value for one in samples}


def test_an_empty_server_can_be_scraped(house):
    found = scrape(house)
    assert found["lodesman_waiting_jobs",] == 0
    assert found["lodesman_task_queues",] == 0


def test_jobs_are_counted_by_group_and_state_over_all_owners(house):
    house.user("cleo", "physics")
    for name in ("ann", "cleo", "bob"):
        house.submitted({"Parameters": 3}, token=name)
    house.control("hold", 1)
    house.claim(house.pilot(), 2)
    found = scrape(house)
    counts = {key[1:]: value for key, value in found.items() if key[0] == "lodesman_jobs"}
    assert sum(counts.values()) == 9
    assert counts[("group", "physics"), ("state", "Held")] == 1
    assert sum(value for key, value in counts.items() if key[1] == ("state", "Matched")) == 2
    assert found["lodesman_waiting_jobs",] == 6


def test_pilots_are_counted_by_site_and_state(house):
    house.pilot()
    house.pilot("South")
    house.prepare_pilot("South")
    found = scrape(house)
    assert found["lodesman_pilots", ("site", "North"), ("state", "Running")] == 1
    assert found["lodesman_pilots", ("site", "South"), ("state", "Submitted")] == 1


def test_counters_of_the_hot_process_are_there_and_only_grow(house):
    pilot = house.pilot()
    before = scrape(house)["lodesman_claims_total",]
    house.claim(pilot)
    assert scrape(house)["lodesman_claims_total",] == before + 1


def test_names_that_need_escaping_do_not_break_the_text(house):
    house.user("odd", 'a"b\\c\n{d}')
    house.submitted(token="odd")
    assert scrape(house)["lodesman_jobs", ("group", 'a"b\\c\n{d}'), ("state", "Waiting")] == 1


def test_metrics_need_the_scope_to_read_pilots(house):
    assert house.call("GET", "/metrics").status == 401
    house.user("cleo", "physics", scopes=("jobs:read",))
    assert house.call("GET", "/metrics", token="cleo").status == 403


def test_the_counters_of_the_hot_process_are_for_the_administrator(house):
    assert house.call("GET", "/v1/service/metrics", token="", public=True).status == 401
    assert house.call("GET", "/v1/service/metrics", token="ann", public=True).status == 404


def test_the_hot_process_counts(house):
    house.submitted({}, {}, {})
    house.claim(house.pilot(), 2)
    told = house.get("/v1/service/metrics", "service")
    assert (told["submitted_jobs_total"], told["claims_total"], told["claimed_jobs_total"]) == (3, 1, 2)
    assert told["pilots_joined"] == 1
    assert told["commands_total"] >= told["commits_total"] > 0


def test_a_repeated_submission_is_not_counted_again(house):
    for _ in range(3):
        house.submitted({}, {}, request_id="r")
    assert house.get("/v1/service/metrics", "service")["submitted_jobs_total"] == 2


def test_health_needs_no_token_and_is_true(house):
    answer = house.call("GET", "/health")
    assert (answer.status, answer.json["status"]) == (200, "ok")
    assert answer.json["time"] == house.now


def alive(house, **failing):
    answer = house.call("POST", "/v1/service/alive", {"failing": failing}, token="service")
    assert answer.status == 200


def test_health_includes_the_background_process(house):
    def told():
        answer = house.get("/health", "")
        return answer["status"], answer["background"]["standing"]

    assert told() == ("ok", "starting")
    alive(house)
    assert told() == ("ok", "ok")
    house.ticks += 25.0
    assert told() == ("ok", "ok")
    assert house.get("/health", "")["background"]["age_seconds"] == 25.0
    house.ticks += 10.0
    assert told() == ("degraded", "silent")
    alive(house, director="IOError: disk")
    assert told() == ("degraded", "failing")
    assert house.get("/health", "")["background"]["failing"] == ["director"]
    alive(house)
    for _ in range(3):
        house.core.background.ended(house.ticks)
    assert told() == ("degraded", "restarting")
    assert house.get("/health", "")["background"]["restarts"] == 3


def test_the_background_process_is_in_the_metrics(house):
    alive(house)
    house.ticks += 40.0
    house.core.background.ended(house.ticks)
    told = house.get("/v1/service/metrics", "service")
    assert (told["background_ok"], told["background_heard_seconds_ago"]) == (0, 40.0)
    assert told["background_restarts_total"] == 1


def test_only_the_background_process_says_that_it_lives(house):
    for token in ("", "ann", "admin"):
        assert house.call("POST", "/v1/service/alive", {"failing": {}}, token=token).status in (401, 403)
    assert not house.core.background.has_reported


def test_what_upkeep_does_is_in_the_metrics(house):
    figures = UpkeepFigures(
        failures={"director": 3, "census": 0}, succeeded_at={"census": 5.0}, repaired={"wrong_counters": 2}
    )
    house.side.upkeep = lambda: figures
    found = scrape(house)
    assert found["lodesman_upkeep_failures_total", ("step", "director")] == 3
    assert found["lodesman_upkeep_failures_total", ("step", "census")] == 0
    assert found["lodesman_upkeep_success_timestamp_seconds", ("step", "census")] == 5.0
    assert found["lodesman_reconciled_total", ("fault", "wrong_counters")] == 2


def test_pilots_that_do_not_start_are_in_the_metrics(house):
    short, long = QueueId("North", "ce.north", "short"), QueueId("South", "ce.south", "long")
    house.side.upkeep = lambda: UpkeepFigures(
        failed_starts={(short, StartFault.ENDED): 7, (long, StartFault.REFUSED): 1},
        breakers={short: BreakerState.OPEN},
    )
    found = scrape(house)
    north, south = (
        tuple(zip(("ce", "queue", "site"), (q.ce, q.queue, q.site), strict=True)) for q in (short, long)
    )
    failed = {
        key[1:]: value for key, value in found.items() if key[0] == "lodesman_failed_pilot_starts_total"
    }
    assert {tuple(sorted(key)): value for key, value in failed.items()} == {
        (("cause", "ended-before-it-joined"), *north): 7, (("cause", "refused"), *south): 1,
    }  # fmt: skip
    states = {
        tuple(sorted(key[1:])): value for key, value in found.items() if key[0] == "lodesman_breaker_state"
    }
    assert states == {north: 2, south: 0}
    assert [found["lodesman_breakers", ("state", state)] for state in ("open", "half-open")] == [1, 0]


@pytest.mark.stores
def test_the_metrics_of_a_user_are_those_of_the_own_vo(house):
    """Groups, counts, sites and queues of others, and what the server does for them, are for administrators."""
    house.user("eve", "planets", vo="other")
    house.submitted({"Parameters": 3}, token="ann")
    house.submitted({"Memory": 10**9}, token="ann", hold_if_impossible=True)
    house.pilot("South")
    theirs, ours = QueueId("Secret", "ce", "q"), QueueId("North", "ce.north", "short")
    house.side.upkeep = lambda: UpkeepFigures(
        failures={"director": 3},
        gates={"Secret": True, "North": False},
        failed_starts={(theirs, StartFault.ENDED): 7, (ours, StartFault.ENDED): 1},
        breakers={theirs: BreakerState.OPEN},
    )
    every, ann, eve = (scrape(house, name) for name in ("admin", "ann", "eve"))
    assert every["lodesman_upkeep_failures_total", ("step", "director")] == 3
    assert "lodesman_submitted_jobs_total" in {key[0] for key in every}
    for found in (ann, eve):
        labels = {value for key in found for _, value in key[1:]}
        assert not labels & {"Secret", "director"}
        assert not [key for key in found if key[0].endswith("_jobs_total")]
        assert found["lodesman_breakers", ("state", "open")] == 0
        assert found["lodesman_site_gates", ("state", "open")] == 0
    assert (ann["lodesman_waiting_jobs",], ann["lodesman_task_queues",]) == (3, 1)
    assert ann["lodesman_jobs", ("group", "physics"), ("state", "Waiting")] == 3
    assert ("North", 1) in [(dict(key[1:]).get("site"), value) for key, value in ann.items()]
    assert (eve["lodesman_waiting_jobs",], eve["lodesman_task_queues",]) == (0, 0)
    empty = {"lodesman_jobs", "lodesman_pilots", "lodesman_waiting_jobs_by_reason"}
    assert not empty & {key[0] for key in eve}


def test_jobs_that_nothing_can_run_are_in_the_metrics(house):
    house.submitted({"Memory": 10**9}, {"Memory": 10**9}, hold_if_impossible=True)
    found = scrape(house)
    by_reason = {
        key[2:]: value for key, value in found.items() if key[0] == "lodesman_waiting_jobs_by_reason"
    }
    assert by_reason == {(("reason", "impossible"), ("verdict", "never")): 2}


@pytest.mark.parametrize(
    "fault",
    [
        apsw.IOError("disk"),
        apsw.FullError("full"),
        apsw.BusyError("busy"),
        MemoryError(),
        AssertionError("bug"),
    ],
    ids=lambda fault: type(fault).__name__,
)
@pytest.mark.parametrize("path", ["/v1/jobs/counts", "/v1/usage", "/metrics", "/v1/sites"])
def test_a_fault_of_the_database_costs_one_request(house, monkeypatch, fault, path):
    def broken(*_args, **_more):
        raise fault

    with monkeypatch.context() as patch:
        for name in (
            "job_lists.count_jobs",
            "job_lists.usage_facts",
            "reads.database_metrics",
            "reads.list_sites",
        ):
            patch.setattr(f"lodesman.server.http.{name}", broken)
        answer = house.call("GET", path, token="ann")
        assert (answer.status, answer.code) == (503, "unavailable")
    assert house.call("GET", path, token="ann").status == 200


def test_a_server_whose_writer_ended_is_not_well(house):
    house.core.journal.close()
    answer = house.call("GET", "/health")
    assert (answer.status, answer.code) == (503, "unavailable")
    assert house.submit().status == 503


class Fatal(BaseException):
    """An exception that no command may raise and no code catches."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_whose_writer_died_is_not_well(house):
    class Deadly:
        def apply(self, tx):
            raise Fatal

    house.core.journal.post(Deadly(), lambda _: None)
    house.core.journal._thread.join(60)
    assert house.call("GET", "/health").status == 503


@pytest.mark.parametrize(
    "fault", [RuntimeError, RecursionError, AssertionError, KeyError, OSError, MemoryError]
)
def test_a_bug_in_one_command_ends_neither_the_writer_nor_the_others(house, fault):
    class Broken:
        def apply(self, tx):
            raise fault("a bug")

    before = house.submitted()
    with pytest.raises(Exception, match="nothing was stored"):
        house.do(Broken())
    assert house.submitted() == before + 1
    assert house.get("/health", "")["status"] == "ok"


def test_a_refusal_after_a_change_is_a_fault_of_the_server(house, monkeypatch):
    """Nothing of it is stored, the answer is no refusal, and an administrator hears of it."""

    def refuse(*_):
        raise Conflict("Too late.")

    with monkeypatch.context() as patch:
        patch.setattr("lodesman.server.writer.submit.use_inputs", refuse)
        answer = house.submit()
    assert (answer.status, answer.code) == (500, "server-fault")
    assert answer.json["error"]["data"] == {"fault": "RefusedTooLate"}
    assert house.get("/v1/jobs?all=true", "admin")["jobs"] == []
    words = "Changes that the server failed to make, and rolled back: 1."
    assert (house.get("/health", "")["status"], house.get("/health", "")["faults"]) == ("ok", [words])
    assert house.submitted() > 0


def test_health_says_what_was_mended(house):
    assert house.get("/health", "")["faults"] == []
    house.submitted({"Parameters": 2})
    claimed = house.claim(house.pilot(), 2)
    with house._writer as db:
        db.change("DELETE FROM job WHERE id = ?", (claimed[0]["id"],))
        db.change("UPDATE job SET state = 'Waiting', attempt = 0, last_attempt = NULL")
    assert house.post(inner_calls.RECONCILE, Suspects(attempts=[1, 2])).attempts_not_named == 1
    assert house.get("/health", "")["faults"] == [
        "Attempts that lived without a job: 1, mended.",
        "Attempts that lived though their jobs did not name them: 1, mended.",
    ]


def test_health_names_why_the_database_refused_the_last_change(house):
    assert house.get("/health", "")["trouble"] == ""
    assert house.get("/v1/service/metrics", "service")["database_ok"] == 1
    house.core.journal.trouble = "The disk of the database is full."
    assert house.get("/v1/service/metrics", "service")["database_ok"] == 0
    found = house.get("/health", "")
    assert (found["status"], found["trouble"]) == ("degraded", "The disk of the database is full.")


PLACE = ("North", "ce.north", "short")


@pytest.mark.parametrize("state", list(BreakerState))
def test_pilots_that_do_not_start_are_a_warning_and_the_server_is_well(house, state):
    """Also before the breaker opens."""
    broken = Breaker(state=state, failures=3, trips=1, retry_at=1e12, reason="Permission denied")
    house.do(Change(put_breakers, [StoredBreaker(*PLACE, encode(broken).decode())]))
    answer = house.call("GET", "/health")
    assert (answer.status, answer.json["status"]) == (200, "ok")
    said = answer.json["warnings"]
    why = "the last ones failed" if state is BreakerState.CLOSED else "the breaker is open"
    assert said == [f"1 CE queue does not start pilots: {why} (lode site ls)"]


@pytest.mark.parametrize(("order", "count"), [("open", 1), ("close", 0)])
def test_an_order_goes_before_a_breaker(house, order, count):
    if order == "close":
        broken = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=1e12, reason="none")
        house.do(Change(put_breakers, [StoredBreaker(*PLACE, encode(broken).decode())]))
    body = {"path": "/".join(PLACE), "order": order, "reason": "a new disk"}
    assert house.call("POST", "/v1/queues/breaker", body, token="admin").status == 200
    assert len(house.call("GET", "/health").json["warnings"]) == count


def gone(*_):
    raise Unavailable("The part of the server that reads is starting.")


def test_without_the_background_process_the_hot_one_is_still_measured(house):
    house.submitted()
    whole = scrape(house)
    assert whole["lodesman_background_up",] == 1
    house.core.background.reported(house.ticks, BackgroundState({"director": "no disk"}))
    house.app.forward = gone
    found = scrape(house)
    assert (found["lodesman_background_up",], found["lodesman_background_ok",]) == (0, 0)
    assert found["lodesman_submitted_jobs_total",] == 1
    assert found.keys() < whole.keys()
    assert house.call("GET", "/v1/jobs/counts", token="ann").status == 503


def test_metrics_of_the_hot_process_are_for_those_who_may_read_pilots(house):
    house.app.forward = gone
    assert house.call("GET", "/metrics").status == 401
    house.user("cleo", "physics", scopes=("jobs:read",))
    assert house.call("GET", "/metrics", token="cleo").status == 403


def test_health_names_what_is_left_out_but_no_site_to_strangers(house):
    left_out = [
        "task queue 7",
        "CE queue North/ce.north/short",
        "site South",
        *(f"job {n}" for n in range(9)),
    ]
    body = {"failing": {}, "left_out": left_out}
    assert house.call("POST", "/v1/service/alive", body, token="service").status == 200
    told = house.get("/health", token=None)
    (text,) = told["faults"]
    assert text == (
        "What the server cannot handle now, and leaves out: a CE queue (lode why names it), a site (lode why names it), "
        f"{', '.join(f'job {n}' for n in range(8))}, and 2 more."
    )
    body = {"failing": {}, "damaged": ["entry.json of pilot s1-1"]}
    assert house.call("POST", "/v1/service/alive", body, token="service").status == 200
    assert house.get("/health", token=None)["faults"] == [
        "Files were damaged, as by a power cut: entry.json of pilot s1-1."
    ]
    alive(house)
    assert house.get("/health", token=None)["faults"] == []


def test_who_may_enter_the_database_is_a_warning(house):
    house.core.openness = "Every role may."
    answer = house.call("GET", "/health").json
    assert (answer["status"], answer["warnings"][0]) == ("ok", "Every role may.")
