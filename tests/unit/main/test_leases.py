"""Pilots that fall silent: whom the list of a moment ago names may have spoken since."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from lodesman.base.errors import Unavailable
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import classes_of
from lodesman.server.config.sections import BrokerSection, MatchingSection
from lodesman.server.live import leases as leases_module
from lodesman.server.live.core import Core
from lodesman.server.live.leases import Leases
from lodesman.server.live.sessions import Sessions
from lodesman.server.main import config_watch
from lodesman.server.main import server as server_module
from lodesman.server.main.config_watch import HotConfiguration
from lodesman.server.main.server import Server
from lodesman.server.writer import report
from lodesman.server.writer.job_classes import ClassRules
from lodesman.server.writer.sessions import SILENT_SECONDS, PilotSession, silent_seconds
from lodesman.server.writer.submit_pools import set_shares
from lodesman.wire.accounts import AuditNote
from lodesman.wire.groups import Arena, KnownUsage, SliceUsage, TimeSlice
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.jsv import JsvSection
from lodesman.wire.server import ConfigurationState
from lodesman.wire.vocabulary import Packing


class QuietSessions(Sessions):
    """Sessions of which only the last word is known, without a database."""

    def __init__(self, core: Quiet, last_seen: dict[int, float]) -> None:
        dict.__init__(self, {pilot: cast("Any", Seen(at)) for pilot, at in last_seen.items()})
        self.lease_seconds = 10.0
        self.silent_seconds = silent_seconds(self.lease_seconds)
        self._live, self._clock, self._ticks = cast("Any", core.live), core.clock, core.ticks

    def end(self, pilot: int) -> None:
        self.pop(pilot, None)


class Quiet:
    """As much of the core as leases need: silent pilots, and the commands that end them."""

    def __init__(self, last_seen: dict[int, float]) -> None:
        self.live = SimpleNamespace(pilots=SimpleNamespace(silent=set()), parked=(), mask=SiteMask())
        self.policy = SimpleNamespace(shares_until=float("inf"))
        self.now = 100.0
        self.sessions = QuietSessions(self, last_seen)
        self.commands = SimpleNamespace(run=self.run)
        self.ended: list[int] = []
        self.noted: list[dict[int, float]] = []
        self.meanwhile: dict[int, Any] = {}

    def ticks(self) -> float:
        return self.now

    def clock(self) -> float:
        return 1_000_000.0 + self.now

    async def run(self, command: Any) -> int:
        if command.change is report.note_silence:
            since = command.values[1]
            self.noted.append(dict(since))
            self.meanwhile.get(0, lambda: None)()
            self.live.pilots.silent |= set(since)
            return len(since)
        pilot_id = command.values[1]
        self.meanwhile.get(pilot_id, lambda: None)()
        self.ended.append(pilot_id)
        return 0


class Seen:
    """A session of which only the last word is known."""

    def __init__(self, last_seen: float) -> None:
        self.last_seen = last_seen


@pytest.mark.parametrize("fault", [NameError("bug"), ModuleNotFoundError("bug"), KeyError("bug")])
def test_a_bug_in_a_step_of_the_hot_process_does_not_end_its_loop(fault, monkeypatch, caplog) -> None:
    monkeypatch.setattr(server_module, "RESTART_SECONDS", 0.0)
    server = Server.__new__(Server)
    server._stopping = False
    done: list[str] = []

    async def step() -> None:
        done.append("step")
        if len(done) == 1:
            raise fault
        server._stopping = True

    asyncio.run(server._again(0.0, step))
    assert done == ["step", "step"]
    assert "Traceback" in caplog.text


def end_expired(core: Quiet) -> list[int]:
    leases = Leases(cast("Core", core))

    async def go() -> None:
        for pilot in core.sessions.expired():
            await leases._lost(pilot)

    asyncio.run(go())
    return core.ended


def test_those_and_only_those_are_ended_whose_lease_has_ended() -> None:
    core = Quiet({1: 0.0, 2: 95.0, 3: 89.9, 4: 90.0})
    assert end_expired(core) == [1, 3]
    assert set(core.sessions) == {2, 4}


def test_a_pilot_that_speaks_while_another_is_being_ended_stays() -> None:
    core = Quiet({1: 0.0, 2: 0.0, 3: 0.0})
    core.meanwhile[1] = lambda: setattr(core.sessions[2], "last_seen", 100.0)
    assert end_expired(core) == [1, 3]
    assert set(core.sessions) == {2}


def test_a_pilot_that_left_while_another_is_being_ended_is_not_ended_twice() -> None:
    core = Quiet({1: 0.0, 2: 0.0})
    core.meanwhile[1] = lambda: core.sessions.end(2)
    assert end_expired(core) == [1]


def test_one_that_cannot_be_ended_now_is_ended_the_next_time() -> None:
    core = Quiet({1: 0.0})

    def refuse() -> None:
        raise Unavailable("The disk is full.")

    core.meanwhile[1] = refuse
    assert end_expired(core) == []
    assert core.sessions.expired() == [1]
    core.meanwhile.clear()
    assert end_expired(core) == [1]


@pytest.mark.parametrize("pilot", [7, 0])
def test_a_pilot_that_is_gone_is_not_silent(pilot: int) -> None:
    assert not Quiet({}).sessions.has_expired(pilot)


def test_a_session_has_what_is_asked_for() -> None:
    assert "last_seen" in PilotSession.__init__.__code__.co_names


# --- silence before the end of the lease --------------------------------------------------------------------


def note_silence(core: Quiet) -> list[dict[int, float]]:
    asyncio.run(Leases(cast("Core", core))._note_silence())
    return core.noted


@pytest.mark.parametrize(("lease", "seconds"), [(1_800.0, SILENT_SECONDS), (600.0, 300.0), (8.0, 4.0)])
def test_silence_is_long_well_before_the_lease_ends(lease: float, seconds: float) -> None:
    assert silent_seconds(lease) == seconds


def test_one_watch_ends_the_lost_and_notes_the_silent() -> None:
    core = Quiet({1: 0.0, 2: 94.0, 3: 99.0})
    asyncio.run(Leases(cast("Core", core)).watch())
    assert (core.ended, [list(one) for one in core.noted]) == ([1], [[2]])


def test_exactly_the_pilots_with_a_lost_heartbeat_are_noted() -> None:
    core = Quiet({1: 94.9, 2: 95.0, 3: 99.0})
    assert note_silence(core) == [{1: 1_000_094.9}]


def test_silence_is_noted_once() -> None:
    core = Quiet({1: 94.0})
    note_silence(core)
    assert len(note_silence(core)) == 1
    core.live.pilots.silent.clear()
    assert len(note_silence(core)) == 2


def test_many_are_noted_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "_SILENT_AT_ONCE", 2)
    core = Quiet(dict.fromkeys(range(1, 6), 0.0))
    assert [sorted(one) for one in note_silence(core)] == [[1, 2], [3, 4], [5]]


def test_nothing_is_asked_of_the_writer_while_all_speak() -> None:
    assert note_silence(Quiet({1: 99.0, 2: 100.0})) == []


def test_silence_that_cannot_be_noted_now_is_noted_the_next_time() -> None:
    core = Quiet({1: 0.0})

    def refuse() -> None:
        raise Unavailable("The disk is full.")

    core.meanwhile[0] = refuse
    note_silence(core)
    assert core.sessions.newly_silent() == {1: 1_000_000.0}
    core.meanwhile.clear()
    note_silence(core)
    assert core.sessions.newly_silent() == {}


def test_changes_and_refusals_of_the_configuration_are_noted() -> None:
    found: list[AuditNote] = []
    state = ConfigurationState(files=("lode.toml",))
    watch = SimpleNamespace(state=state)

    async def note(notes: list[AuditNote]) -> None:
        found.extend(notes)

    def poll() -> Any:
        watch.state = replace(watch.state, refusals=1, faults=({"message": "CPUTime: 5 parsec"},))

    watch.poll = poll
    core: Any = SimpleNamespace(commands=SimpleNamespace(note=note), ticks=lambda: 0.0, usage_until=math.inf)
    configuration = HotConfiguration(core, cast("Any", watch), cast("Any", None), cast("Any", None))
    configuration._has_offered = True
    asyncio.run(configuration.watch_config())
    asyncio.run(configuration.watch_config())
    assert found == [AuditNote("configuration-refused", "lode.toml", detail="CPUTime: 5 parsec")]


def test_a_change_that_cannot_be_noted_yet_is_taken_in_later(monkeypatch: pytest.MonkeyPatch) -> None:
    changed, taken = object(), list[object]()

    async def refuse(_notes: list[AuditNote]) -> None:
        raise Unavailable("The disk is full.")

    async def accept(_notes: list[AuditNote]) -> None:
        pass

    async def take_in(config: Any) -> None:
        taken.append(config)

    core: Any = SimpleNamespace(
        commands=SimpleNamespace(note=refuse), ticks=lambda: 0.0, usage_until=math.inf
    )
    polls = [changed, None]
    watch: Any = SimpleNamespace(state=ConfigurationState(), poll=lambda: polls.pop(0))
    configuration = HotConfiguration(core, watch, cast("Any", None), cast("Any", None))
    monkeypatch.setattr(configuration, "_take_in", take_in)
    with pytest.raises(Unavailable):
        asyncio.run(configuration.watch_config())
    core.commands.note = accept
    asyncio.run(configuration.watch_config())
    assert taken == [changed]


@pytest.mark.parametrize(("corrector", "share"), [("usage", 500.0), ("none", 1000.0)])
def test_a_changed_configuration_keeps_shares_by_command_and_what_corrects_them_unless_it_has_no_corrector(
    monkeypatch: pytest.MonkeyPatch, corrector: str, share: float
) -> None:
    monkeypatch.setattr(config_watch, "keep_texts", lambda *_: None)
    monkeypatch.setattr(config_watch, "kept_file", lambda _: None)
    by_command = lambda _, policy, _now: policy.set_shares(1, {"set": 5.0})  # noqa: E731
    monkeypatch.setattr(config_watch, "know_shares", by_command)
    resources = load_resources([("g.toml", "[group.a]\n[group.b]\n")])
    slices = [SliceUsage(TimeSlice(), {"a": 3.0, "b": 1.0}, {})]
    known = KnownUsage(
        at=0.0, currency="starts", most=5.0, slices=slices, arenas=[Arena([""], ["a", "b"])], owners={}
    )
    state, drawn = ConfigurationState(), list[float]()

    async def command(change: Any) -> Any:
        if change.change is set_shares:
            drawn.extend(change.values[1][name].share for name in ("a", "set"))
        return {}

    async def note(_notes: list[AuditNote]) -> None:
        pass

    async def offer_anew(_vos: Any) -> None:
        pass

    shares = SimpleNamespace(corrector=corrector)
    config = SimpleNamespace(
        limits=None,
        jsv=JsvSection(server="script:/x"),
        resources=resources,
        shares=shares,
        job_classes=JobClassSection(),
        broker=BrokerSection(lifetime_seconds=60.0),
        matching=MatchingSection(packing=Packing.ANY),
    )
    live = SimpleNamespace(queues=SimpleNamespace(packs=True))
    core: Any = SimpleNamespace(
        commands=SimpleNamespace(note=note, run=command), live=live, reader=None,
        policy=Policy(resources, usage=known), ticks=lambda: 0.0,
        usage_until=math.inf, quotas=None, job_classes=ClassRules(classes_of([], Vocabulary())), one_edit=asyncio.Lock(),
        principals=SimpleNamespace(unshare=lambda _groups: None),
    )  # fmt: skip
    watch: Any = SimpleNamespace(state=state, poll=lambda: config)
    configuration = HotConfiguration(core, watch, cast("Any", config), lambda *_: Policy(resources))
    monkeypatch.setattr(configuration, "offer_anew", offer_anew)
    asyncio.run(configuration.watch_config())
    assert drawn == [share, 5.0]
    assert core.jsv.is_set
    assert core.gates.lifetime_s == 60.0
    assert not live.queues.packs
