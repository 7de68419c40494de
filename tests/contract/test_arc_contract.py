"""The contract of `test_backend_contract.py` on a real ARC, where a job takes half a minute: the same points on few jobs.

Three jobs end by themselves; of four others two run and two wait until they are cancelled. A point here holds what the
tests of the contract do whose names it has, on what was seen of these jobs. One is weaker: what is forgotten goes soon, not
at once. All points are one test: else each worker would start an ARC, and send these jobs, for its share of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature

import pytest
from tests.kits.arc_kit import arc_backend, arc_kit, run_service, started_arc
from tests.kits.backend_kit import Kit
from tests.kits.shell_pilots import shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import (
    BatchLoad,
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotSpec,
    SubmitResult,
    stamp_of,
)
from lodesman.server.engines.run.https import Answer

pytestmark = [pytest.mark.e2e, pytest.mark.engines]

ENVIRONMENT = {"LODE_TEST": "with blank, 'quote' and\nline ü"}
SECRET = "LODE_SECRET_OF_THE_SERVER"
NOWHERE = {"nosuchpilot-1": "4000000"}
ENDING = r"""
echo ran >> {place}/log-$2
cat "$1" > {place}/file-$2
stat -c " %a" "$1" >> {place}/file-$2
env > {place}/env-$2
printf %s "$LODE_TEST" > {place}/value-$2
echo first; seq 100000; printf '\0%s\n' 'last of all'; echo error >&2
test "$2" = 1 || exit 42
"""


POINTS: list[Callable[..., None]] = []


def point(check: Callable[..., None]) -> Callable[..., None]:
    """One of the contract, with its fixtures by name."""
    POINTS.append(check)
    return check


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What was seen of jobs that ended by themselves: two copies, and one whose Python does not exist."""

    kit: Kit
    spec: PilotSpec
    before: float
    copies: Mapping[str, str]
    stray: Mapping[str, str]
    twice: tuple[SubmitResult, ...]
    waiting: Mapping[str, NativeStatus]
    seen: Mapping[str, NativeStatus]

    def copy(self, number: int) -> str:
        return stamp_of(self.spec.submission, number)


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """What was seen of four copies of which two at once ran, until three were cancelled, and then the last."""

    kit: Kit
    copies: Mapping[str, str]
    running: list[str]
    waiting: list[str]
    seen: Mapping[str, NativeStatus]
    seen_again: Mapping[str, NativeStatus]
    load: BatchLoad
    census: Mapping[str, str]
    outcomes: Mapping[str, CancelOutcome]
    again: Mapping[str, CancelOutcome]
    after: Mapping[str, NativeStatus]
    others: Mapping[str, NativeStatus]
    at_last: Mapping[str, CancelOutcome]
    empty: BatchLoad


@pytest.fixture(scope="module")
def service() -> Iterator[Mapping[str, str]]:
    with started_arc() as found:
        yield found


@pytest.fixture(scope="module")
def kit(service: Mapping[str, str]) -> Iterator[Kit]:
    with arc_kit(service) as found:
        yield found


@pytest.fixture(scope="module")
def ended(kit: Kit) -> Ended:
    before = time.time()
    os.environ[SECRET] = "hush"
    try:
        spec = kit.spec(ENDING.format(place=kit.place), count=2, environment=ENVIRONMENT)
        copies = kit.backend.submit(spec).accepted
        stray = kit.submit("exit 3", python="/no/such/python")
    finally:
        del os.environ[SECRET]
    twice = tuple(backend.submit(spec) for backend in (kit.backend, kit.again()))
    return Ended(
        kit=kit,
        spec=spec,
        before=before,
        copies=copies,
        stray=stray,
        twice=twice,
        waiting=kit.backend.status({**copies, **stray, **NOWHERE}),
        seen=kit.wait_for({**copies, **stray}, NativeState.ENDED),
    )


@pytest.fixture(scope="module")
def cancelled(ended: Ended) -> Cancelled:
    kit, backend = ended.kit, ended.kit.backend
    copies = kit.submit(f"touch {kit.place}/ran-$2; read line < {kit.gate()}", count=4)
    running = kit.running(copies, 2)
    waiting = [stamp for stamp in copies if stamp not in running]
    backend.forget(copies)
    seen = backend.status(copies)
    load = backend.loads([kit.queue])[kit.queue]
    fresh = kit.again()
    asked = {stamp: copies[stamp] for stamp in (*waiting, running[0])}
    seen_again, census = fresh.status(copies), kit.again().census()
    outcomes = fresh.cancel({**asked, **NOWHERE})
    again = backend.cancel({running[0]: copies[running[0]]})
    after = kit.wait_for(asked, NativeState.ENDED)
    last = {running[1]: copies[running[1]]}
    others = backend.status(last)
    backend.cancel(last)
    kit.wait_for(last, NativeState.ENDED)
    return Cancelled(
        kit=kit, copies=copies, running=running, waiting=waiting, seen=seen, seen_again=seen_again, load=load,
        census=census, outcomes=outcomes, again=again, after=after, others=others, at_last=backend.cancel(copies),
        empty=backend.loads([kit.queue])[kit.queue],
    )  # fmt: skip


@point
def asking_about_nothing(kit):
    assert kit.backend.status({}) == {}
    assert kit.backend.cancel({}) == {}
    assert kit.backend.loads([]) == {}
    kit.backend.forget({})
    result = kit.backend.submit(kit.spec("true", count=0))
    assert (result.accepted, result.refused) == ({}, {})


@point
def an_observation_has_its_time_and_not_listed_is_unknown(kit):
    before = time.time()
    (status,) = kit.backend.status(NOWHERE).values()
    assert before - 1 <= status.observed_at <= time.time() + 1
    assert (status.state, status.exit_code) == (NativeState.UNKNOWN, None)
    assert kit.backend.cancel(NOWHERE) == dict.fromkeys(NOWHERE, CancelOutcome.UNKNOWN)
    assert kit.backend.census() == {}


@point
def a_bad_submission_is_refused_for_good(kit):
    for spec in (
        shell_spec(kit.queue, "../b", "true", count=2),
        shell_spec(QueueId("Contract.Site", "arc", "nosuchqueue"), "nosuchqueue", "true", count=2),
        shell_spec(kit.queue, "nosuchrelation", "true", count=2, options=("(count=",)),
    ):
        result = kit.backend.submit(spec)
        assert (dict(result.accepted), len(result.refused)) == ({}, 2)
        assert not any(refusal.transient for refusal in result.refused.values())


@point
def a_pilot_that_fits_can_run_and_one_of_another_share_cannot(kit):
    assert kit.backend.check(kit.spec("true")).possible
    check = kit.backend.check(shell_spec(QueueId("Contract.Site", "arc", "nosuchqueue"), "s", "true"))
    assert (check.possible, check.detail) == (False, "ARC has no share nosuchqueue, only pilots")


@point
def there_is_no_output_of_a_pilot_that_never_began(kit):
    assert kit.backend.output("nosuchpilot-1", "4000000") is None


@point
def each_copy_gets_its_own_id(ended):
    assert list(ended.copies) == [ended.copy(1), ended.copy(2)]
    assert len({*ended.copies.values(), *ended.stray.values()}) == 3
    assert all(isinstance(native_id, str) and native_id for native_id in ended.copies.values())


@point
def at_once_after_the_submission_all_are_there(ended):
    assert {ended.waiting[stamp].state for stamp in (*ended.copies, *ended.stray)} <= {
        NativeState.WAITING,
        NativeState.RUNNING,
    }
    assert set(ended.waiting) == {*ended.copies, *ended.stray, *NOWHERE}
    assert ended.waiting["nosuchpilot-1"].state is NativeState.UNKNOWN


@point
def a_submission_never_runs_twice(ended):
    for result in ended.twice:
        assert (dict(result.accepted), sorted(result.refused)) == ({}, sorted(ended.copies))
    logs = sorted(ended.kit.place.glob("log-*"))
    assert [path.read_text() for path in logs] == ["ran\n", "ran\n"]


@point
def each_copy_knows_its_number(ended):
    assert sorted(path.name for path in ended.kit.place.glob("log-*")) == ["log-1", "log-2"]


@point
def exit_codes_come_back(ended):
    assert [ended.seen[stamp].exit_code for stamp in ended.copies] == [0, 42]


@point
def a_python_that_does_not_exist_is_passed_over(ended):
    assert [ended.seen[stamp].exit_code for stamp in ended.stray] == [3]


@point
def an_end_has_its_host_and_its_times(ended):
    for status in ended.seen.values():
        assert status.host == os.uname().nodename
        assert status.word in {"FINISHED", "FAILED"}
        assert ended.before - 2 <= status.started_at <= status.ended_at <= time.time() + 2


@point
def an_end_is_final(ended):
    for backend in (ended.kit.backend, ended.kit.again()):
        for stamp, status in backend.status({**ended.copies, **ended.stray}).items():
            first = ended.seen[stamp]
            assert (status.state, status.exit_code, status.detail) == (
                first.state,
                first.exit_code,
                first.detail,
            )
            assert status.observed_at >= first.observed_at


@point
def only_the_pilot_can_read_its_file(ended):
    text = (ended.kit.place / "file-1").read_text()
    assert text == ended.spec.pilot_file.decode() + " 600\n"


@point
def the_environment_reaches_the_pilot(ended):
    assert (ended.kit.place / "value-2").read_text() == ENVIRONMENT["LODE_TEST"]


@point
def no_variable_of_the_server_is_in_a_pilot(ended):
    assert SECRET not in (ended.kit.place / "env-1").read_text()


@point
def the_end_of_the_output_is_kept_and_what_is_forgotten_is_gone(ended, cancelled):
    kit, stamp = ended.kit, ended.copy(2)
    output = kit.backend.output(stamp, ended.copies[stamp])
    assert len(output) == 64 << 10
    assert b"\0last of all\n" in output
    assert b"error" in output
    assert b"first" not in output
    assert kit.backend.output("another-1", ended.copies[stamp]) is None
    kit.backend.forget(ended.copies)
    deadline = time.monotonic() + kit.patience  # it promises to clean soon
    while kit.backend.output(stamp, ended.copies[stamp]) is not None:
        assert time.monotonic() < deadline
        kit.advance()
    kit.backend.forget(ended.copies)
    assert not ended.copies.keys() & kit.backend.census().keys()


@point
def more_pilots_than_slots_wait(cancelled):
    states = {stamp: cancelled.seen[stamp].state for stamp in cancelled.waiting}
    assert states == dict.fromkeys(cancelled.waiting, NativeState.WAITING)
    load = cancelled.load
    assert (load.waiting, load.running, load.held) == (2, 2, 0)


@point
def a_pilot_that_runs_is_not_forgotten_and_has_a_host(cancelled):
    for stamp in cancelled.running:
        assert cancelled.seen[stamp].state is NativeState.RUNNING
        assert cancelled.seen[stamp].host == os.uname().nodename


@point
def pilots_are_found_by_stamp(cancelled):
    assert cancelled.copies.items() <= cancelled.census.items()


@point
def ids_are_good_in_another_process(cancelled):
    states = {stamp: status.state for stamp, status in cancelled.seen_again.items()}
    running, waiting = NativeState.RUNNING, NativeState.WAITING
    assert states == dict.fromkeys(cancelled.running, running) | dict.fromkeys(cancelled.waiting, waiting)


@point
def cancelling(cancelled):
    expected = dict.fromkeys(cancelled.waiting, CancelOutcome.REMOVED) | {
        cancelled.running[0]: CancelOutcome.ORDERED,
        "nosuchpilot-1": CancelOutcome.UNKNOWN,
    }
    assert cancelled.outcomes == expected
    assert [status.state for status in cancelled.others.values()] == [NativeState.RUNNING]
    assert len(list(cancelled.kit.place.glob("ran-*"))) == 2, "what was cancelled while it waited never runs"


@point
def cancelling_twice_and_after_the_end(cancelled):
    assert set(cancelled.again.values()) <= {CancelOutcome.ORDERED, CancelOutcome.ENDED}
    assert cancelled.at_last == dict.fromkeys(cancelled.copies, CancelOutcome.ENDED)


@point
def a_native_id_of_another_pilot_is_unknown(ended, cancelled):
    backend, (native_id, *_) = ended.kit.backend, cancelled.copies.values()
    (status,) = backend.status({"another-1": native_id}).values()
    assert status.state is NativeState.UNKNOWN
    assert backend.cancel({"another-1": native_id}) == {"another-1": CancelOutcome.UNKNOWN}


@point
def the_load_of_an_idle_queue_is_zero(cancelled):
    assert (cancelled.empty.waiting, cancelled.empty.running, cancelled.empty.held) == (0, 0, 0)


@point
def a_job_whose_script_did_not_arrive_is_refused_and_goes(cancelled, service, monkeypatch):
    backend, kit = arc_backend(service), cancelled.kit
    ask = backend.service.request

    def refuse(method, path, body=None, **more):
        return Answer(401, "Unauthorized", b"", 0) if method == "PUT" else ask(method, path, body, **more)

    monkeypatch.setattr(backend.service, "request", refuse)
    result = backend.submit(kit.spec("true", count=2))
    assert (dict(result.accepted), len(result.refused)) == ({}, 2)
    assert all(refusal.transient for refusal in result.refused.values())
    deadline = time.monotonic() + kit.patience
    while result.refused.keys() & kit.backend.census().keys():
        assert time.monotonic() < deadline
        kit.advance()


@point
def while_arc_is_down_nothing_is_known_and_nothing_ends(cancelled, service):
    kit, backend = cancelled.kit, cancelled.kit.again()
    pilots = kit.submit(f"read line < {kit.gate()}")
    kit.wait_for(pilots, NativeState.RUNNING)
    run_service(service, "stop")
    try:
        for call in (
            lambda: backend.status(pilots),
            lambda: backend.cancel(pilots),
            lambda: backend.loads([kit.queue]),
            lambda: backend.submit(kit.spec("true")),
            backend.census,
        ):
            with pytest.raises(BackendFault) as fault:
                call()
            assert fault.value.data["transient"]
    finally:
        run_service(service, "start")
    assert pilots.items() <= backend.census().items()
    kit.wait_for(pilots, NativeState.ENDED)  # it was killed with the engine, as by a node that fails
    (status,) = backend.status(pilots).values()
    assert status.exit_code != 0


def test_the_contract(request, subtests):
    for check in POINTS:
        with subtests.test(check.__name__):
            check(*map(request.getfixturevalue, signature(check).parameters))
