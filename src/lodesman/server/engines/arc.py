"""ARC computing elements: jobs are sent to A-REX over its REST interface, 1.0 or 1.1 (seen on ARC 6.17 and 7.0).

One request brings the descriptions of all copies, one more for each its script. A job is named by its pilot's
stamp; ARC's own id is the native id. Lists give no names, so what ARC writes of jobs, at most once a minute, is
remembered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from lodesman.base.errors import BackendFault, counted
from lodesman.decide.resources import QueueId
from lodesman.server.engines import arc_text, backend
from lodesman.server.engines.arc_text import ArcFacts, ArcJob, ArcRecord
from lodesman.server.engines.backend import (
    CancelOutcome,
    NativeState,
    NativeStatus,
    SubmitRefusal,
    SubmitResult,
)
from lodesman.server.engines.job_script import job_script
from lodesman.server.engines.run.https import Answer, Https

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_JSON: Final = {"Accept": "application/json", "Content-Type": "application/json"}
_XRSL: Final = {"Accept": "application/json", "Content-Type": "application/rsl"}
# ARC reads at most 1 MB of a list of ids; a document has about 2 kB.
_IDS: Final = 10_000
_DOCUMENTS: Final = 2_000
_AT_ONCE: Final = 8
_LOCAL: Final = "diagnose/local"
_DIAGNOSIS: Final = "diagnose/diag"
_SUBMIT_SECONDS: Final = 300.0  # ARC stores all jobs before it answers
_GOOD: Final = range(200, 300)
_NOT_FOUND: Final = HTTPStatus.NOT_FOUND
_NOTHING: Final = ArcFacts()
_ODD: Final = ArcRecord(0, "ARC says two things of it", "", "", {})
# Their documents say more than those before: the host, the reason.
_SAYS_MORE: Final = frozenset(("RUNNING", "HELD"))


@dataclass(eq=False, kw_only=True)
class ArcBackend:
    """The computing element at `service` (https://HOST:PORT/arex). A queue is one of its shares; jobs whose names
    begin with `mark` are ours.
    """

    service: Https
    mark: str = ""
    version: str = "1.0"  # of its REST interface; nothing of 1.1 is needed, and ARC 7 has both
    clock: Callable[[], float] = time.time
    sizes: backend.Sizes = field(default_factory=backend.Sizes)
    # By native id. An end never changes again.
    _known: dict[str, ArcFacts] = field(default_factory=dict, init=False, repr=False)
    _ends: dict[str, NativeStatus] = field(default_factory=dict, init=False, repr=False)

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, spec: backend.PilotSpec) -> SubmitResult:
        """Describe all copies in one request, then bring each its script: a job without one never starts."""
        stamps = spec.stamps()
        if reason := backend.why_unusable(spec):
            return backend.refuse_all(spec, reason, transient=False)
        if not stamps:
            return SubmitResult()
        present = self.census().keys() & set(stamps.values())
        is_there = SubmitRefusal(reason="a job of this name is there already", transient=False)
        refused = dict.fromkeys(present, is_there)
        stamps = {number: stamp for number, stamp in stamps.items() if stamp not in present}
        script = job_script(spec, copy="$1").encode(errors="surrogateescape")
        made: dict[str, str] = {}
        for stamp, record in self._describe(spec, stamps, len(script)).items():
            if record.native_id and record.code in _GOOD:
                made[stamp] = record.native_id
                self._known[record.native_id] = ArcFacts(name=stamp, queue=spec.queue.queue)
            elif record.code:
                refused[stamp] = arc_text.refusal_of(record.code, record.reason)
        faults = self._bring_scripts(script, made)
        refused |= {stamp: SubmitRefusal(reason=why, transient=True) for stamp, why in faults.items() if why}
        accepted = {stamp: native_id for stamp, native_id in made.items() if stamp not in faults}
        return SubmitResult(accepted=accepted, refused=refused)

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        """One request for the states of all, one more for the documents of those that changed."""
        now = self.clock()
        records = self._observe(pilots.values())
        return {
            stamp: self._status(stamp, native_id, records.get(native_id), now)
            for stamp, native_id in pilots.items()
        }

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """Order jobs to end. One never starts if ARC had submitted it neither before the order nor after it."""
        records = self._observe(pilots.values())
        outcomes = dict.fromkeys(pilots, CancelOutcome.FAILED)
        ordered: dict[str, str] = {}
        for stamp, native_id in pilots.items():
            status = self._status(stamp, native_id, records.get(native_id), 0.0)
            if status.state is NativeState.ENDED:
                outcomes[stamp] = CancelOutcome.ENDED
            elif status.state is not NativeState.UNKNOWN:
                ordered[stamp] = native_id
            elif self._is_absent(stamp, native_id, records.get(native_id)):
                outcomes[stamp] = CancelOutcome.UNKNOWN
        return outcomes | self._kill(ordered) if ordered else outcomes

    def census(self) -> dict[str, str]:
        """The jobs of this account whose names are stamps."""
        return {facts.name: native_id for native_id, facts in self._read_pilots().items()}

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, backend.BatchLoad]:
        """The shares as ARC last described them, and our jobs as it lists them."""
        if not queues:
            return {}
        now = self.clock()
        shares = arc_text.shares_in(self._ask("GET", "/info").body)
        pilots = {
            i: facts.queue
            for i, facts in self._read_pilots().items()
            if i not in self._ends and facts.name.startswith(self.mark)
        }
        nowhere = [native_id for native_id, queue in pilots.items() if not queue]
        texts = self._read_files(_path(native_id, _LOCAL) for native_id in nowhere)
        for native_id, text in zip(nowhere, texts, strict=True):
            facts = self._known.get(native_id, _NOTHING)
            self._known[native_id] = arc_text.with_lines(facts, text)
            pilots[native_id] = self._known[native_id].queue
        records = self._act_on_jobs("status", pilots)
        ours = [
            ArcJob(queue, arc_text.state_of(records[native_id].state if native_id in records else ""))
            for native_id, queue in pilots.items()
            if native_id not in records or records[native_id].code != _NOT_FOUND
        ]
        return {queue: arc_text.load_of(queue.queue, shares, ours, now) for queue in queues}

    def check(self, spec: backend.PilotSpec) -> backend.Check:
        """What the shares say."""
        return arc_text.check_of(spec, arc_text.shares_in(self._ask("GET", "/info").body))

    def output(self, stamp: str, native_id: str) -> bytes | None:
        """The end of the file of its output and errors."""
        if native_id not in self._known:
            self._learn([native_id], {})
        if self._known.get(native_id, _NOTHING).name != stamp:
            return None
        path = _path(native_id, f"session/{arc_text.OUTPUT}")
        head = self._request("HEAD", path)
        if head.code == _NOT_FOUND:
            return None
        begin = max(0, (self._check_answer(head).length or 0) - backend.OUTPUT_BYTES)
        answer = self._request("GET", path, headers={"Range": f"bytes={begin}-"})
        return None if answer.code == _NOT_FOUND else self._check_answer(answer).body[-backend.OUTPUT_BYTES :]

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Have ARC remove ended jobs with their files, which it keeps for a week."""
        ended = [
            pilots[stamp]
            for stamp, status in self.status(pilots).items()
            if status.state is NativeState.ENDED
        ]
        self._act_on_jobs("clean", ended)
        for native_id in ended:
            self._ends.pop(native_id, None)
            self._known.pop(native_id, None)

    # --- inside -----------------------------------------------------------------------------------

    def _describe(
        self, spec: backend.PilotSpec, stamps: Mapping[int, str], script_bytes: int
    ) -> dict[str, ArcRecord]:
        if not stamps:
            return {}
        text = arc_text.descriptions(spec, stamps, script_bytes).encode(errors="surrogateescape")
        answer = self._request(
            "POST", "/jobs?action=new", text, headers=_XRSL, repeatable=False, seconds=_SUBMIT_SECONDS
        )
        if 400 <= answer.code <= 501:  # ARC's own; above are those of what stands before it
            refusal = ArcRecord(answer.code, answer.reason, "", "", {})
            return dict.fromkeys(stamps.values(), refusal)
        records = arc_text.jobs_in(self._check_answer(answer).body)
        if len(records) != len(stamps):
            raise BackendFault(
                f"ARC spoke of {counted(len(records), 'job')}, not of {len(stamps)}.", transient=True
            )
        return dict(zip(stamps.values(), records, strict=True))

    def _bring_scripts(self, script: bytes, made: Mapping[str, str]) -> dict[str, str]:
        """Bring jobs (stamp -> native id) their script. Returns why a job has none ('': not known): such jobs are
        killed. Once ARC does not answer, it is not asked again.
        """
        silent = threading.Event()

        def bring(native_id: str) -> str | None:
            if silent.is_set():
                return "ARC does not answer any more"
            try:
                answer = self._request("PUT", _path(native_id, f"session/{arc_text.SCRIPT}"), script)
            except BackendFault:
                silent.set()
                return ""
            return None if answer.code in _GOOD else f"ARC refused its script: {answer.code} {answer.reason}"

        outcomes = zip(made, _do_at_once(bring, made.values()), strict=True)
        faults = {stamp: why for stamp, why in outcomes if why is not None}
        with suppress(BackendFault):  # ARC itself ends jobs whose script does not come
            self._act_on_jobs("kill", [made[stamp] for stamp in faults])
            self._act_on_jobs("clean", [made[stamp] for stamp, why in faults.items() if why])
        return faults

    def _kill(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """What `status` says may be minutes old; these lists are not."""
        before = self._list_jobs(arc_text.BEFORE_SUBMISSION)
        answers = self._act_on_jobs("kill", pilots.values())
        after = self._list_jobs(arc_text.SUBMITTED)
        outcomes = {}
        for stamp, native_id in pilots.items():
            code = answers[native_id].code if native_id in answers else 0
            if code in _GOOD:
                never = native_id in before and native_id not in after
                outcomes[stamp] = CancelOutcome.REMOVED if never else CancelOutcome.ORDERED
            else:
                outcomes[stamp] = CancelOutcome.UNKNOWN if code == _NOT_FOUND else CancelOutcome.FAILED
        return outcomes

    def _read_pilots(self) -> dict[str, ArcFacts]:
        listed = self._list_jobs()
        alive = (
            [] if listed else [native_id for native_id in list(self._known) if native_id not in self._ends]
        )
        if any(record.code == HTTPStatus.OK for record in self._act_on_jobs("status", alive).values()):
            raise BackendFault("ARC lists no jobs, and knows some.", transient=True)
        self._learn([native_id for native_id in listed if native_id not in self._known], {})
        for native_id in set(self._known) - listed:
            self._known.pop(native_id, None)
            self._ends.pop(native_id, None)
        all_facts = {native_id: self._known.get(native_id, _NOTHING) for native_id in listed}
        return {native_id: facts for native_id, facts in all_facts.items() if backend.split_stamp(facts.name)}

    def _observe(self, native_ids: Iterable[str]) -> dict[str, ArcRecord]:
        records = self._act_on_jobs(
            "status", [native_id for native_id in native_ids if native_id not in self._ends]
        )
        due = [native_id for native_id, record in records.items() if self._is_due(native_id, record)]
        due.sort(key=lambda native_id: records[native_id].state in _SAYS_MORE)  # these can wait
        self._learn(due[:_DOCUMENTS], records)
        return records

    def _is_due(self, native_id: str, record: ArcRecord) -> bool:
        if record.code != HTTPStatus.OK or native_id not in self._known:
            return record.code == HTTPStatus.OK
        says_more = record.state in _SAYS_MORE or arc_text.state_of(record.state) is NativeState.ENDED
        return says_more and self._known[native_id].seen != record.state

    def _learn(self, native_ids: Sequence[str], records: Mapping[str, ArcRecord]) -> None:
        learned: dict[str, ArcFacts] = {}
        files: list[tuple[str, str]] = []
        for native_id, record in self._act_on_jobs("info", native_ids, _DOCUMENTS).items():
            if record.code != HTTPStatus.OK:
                continue
            before = self._known.get(native_id, _NOTHING)
            facts = arc_text.facts_of(record.document)
            state = records[native_id].state if native_id in records else ""
            ended = arc_text.state_of(state) is NativeState.ENDED
            learned[native_id] = replace(
                facts,
                name=facts.name or before.name,
                queue=facts.queue or before.queue,
                seen=state if facts.queue or ended else "",  # a short one is asked for again
            )
            if not learned[native_id].name:
                files.append((native_id, _LOCAL))
            if ended and not facts.queue:
                files.append((native_id, _DIAGNOSIS))
        texts = self._read_files(_path(*file) for file in files)
        for (native_id, _), text in zip(files, texts, strict=True):
            learned[native_id] = arc_text.with_lines(learned[native_id], text)
        self._known.update({native_id: facts for native_id, facts in learned.items() if facts.name})

    def _status(self, stamp: str, native_id: str, record: ArcRecord | None, now: float) -> NativeStatus:
        facts = self._known.get(native_id, _NOTHING)
        if facts.name == stamp and native_id in self._ends:
            return replace(self._ends[native_id], observed_at=now)
        if record is None or record.code != HTTPStatus.OK:
            why = record.reason if record else "ARC says nothing of it"
            return NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail=why)
        if facts.name != stamp:
            why = f"this job is {facts.name}" if facts.name else "ARC did not say its name yet"
            return NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail=why)
        state = arc_text.state_of(record.state)
        if state is NativeState.ENDED and facts.seen != record.state:
            state = NativeState.RUNNING  # how it ended is learned at the next call
        status = arc_text.status_of(record, facts, state, now)
        if state is NativeState.ENDED:
            self._ends[native_id] = status
        return status

    def _is_absent(self, stamp: str, native_id: str, record: ArcRecord | None) -> bool:
        name = self._known.get(native_id, _NOTHING).name
        return name not in {"", stamp} or (record is not None and record.code == _NOT_FOUND)

    # --- requests ---------------------------------------------------------------------------------

    def _list_jobs(self, states: Iterable[str] = ()) -> set[str]:
        answer = self._ask("GET", "/jobs?state=" + ",".join(states) if states else "/jobs")
        if answer.length == 0:  # how ARC 6 writes that there is none
            return set()
        return {record.native_id for record in arc_text.jobs_in(answer.body) if record.native_id}

    def _act_on_jobs(
        self, action: str, native_ids: Collection[str], at_once: int = _IDS
    ) -> dict[str, ArcRecord]:
        """Answers by job, without jobs of which ARC says two things."""
        records: dict[str, ArcRecord] = {}
        left = iter(native_ids)
        while portion := list(islice(left, at_once)):
            answer = self._ask("POST", f"/jobs?action={action}", arc_text.request_body(portion))
            for record in arc_text.jobs_in(answer.body):
                if records.setdefault(record.native_id, record) != record:
                    records[record.native_id] = _ODD
        return records

    def _read_files(self, paths: Iterable[str]) -> list[str]:
        def read(path: str) -> str:
            answer = self._request("GET", path)
            return (
                "" if answer.code == _NOT_FOUND else self._check_answer(answer).body.decode(errors="replace")
            )

        return _do_at_once(read, paths)

    def _request(self, method: str, path: str, body: bytes | None = None, **more: Any) -> Answer:
        return self.service.request(method, f"/rest/{self.version}{path}", body, **more)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        return self._check_answer(self._request(method, path, body, headers=_JSON))

    def _check_answer(self, answer: Answer) -> Answer:
        if answer.code in _GOOD:
            return answer
        hint = "Check the certificate or token, and what ARC allows it." if answer.code in {401, 403} else ""
        raise BackendFault(
            f"{self.service.url} answered {answer.code} {answer.reason}.", hint=hint, transient=True
        )


def _path(native_id: str, part: str) -> str:
    return f"/jobs/{quote(native_id, safe='')}/{part}"


def _do_at_once(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)
