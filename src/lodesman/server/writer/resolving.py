"""Descriptions through the six steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from msgspec.structs import replace

from lodesman.base.errors import InvalidJob, InvalidRequest, LodesmanError, TooLarge
from lodesman.decide.submission.native import record_of, with_attributes
from lodesman.decide.submission.native_table import FREE_MEMORY, MEMORY, SCALARS
from lodesman.decide.submission.native_texts import request_problem
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.decide.submission.resolution import JsvView, ResolvedRecord, SubmissionRefusal
from lodesman.decide.submission.resolve import DraftRecord, SubmissionRules, names_class, resolve
from lodesman.languages import jobs
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.gridengine.values import UnreadableValue
from lodesman.languages.jobclass import ClassRefusal, ClassSnapshot, JobValue
from lodesman.languages.jobclass.attributes import KINDS
from lodesman.languages.jobclass.attributes import entries_of as parts_of
from lodesman.languages.jobclass.classes import REQUESTS
from lodesman.languages.jobclass.request import changes_of
from lodesman.languages.jobs.record import NO_POSITIONS, PositionMap
from lodesman.wire.jobs import Resolution
from lodesman.wire.jsv import VerifyResult
from lodesman.wire.requests import PlanJobBody
from lodesman.wire.vocabulary import Form

Ask = Callable[[JsvView], JsvView]
"""What the server's JSV makes of a job."""


_AS_GIVEN: Final = VerifyResult(None, None, [])
# The most letters that classes give a submission: each takes microseconds.
_MOST_GIVEN: Final = 8_000_000
# As many letters take as long as the six steps of a job (0.15 ms).
_LETTERS_OF_STEPS: Final = 64


_JUDGED: Final = frozenset({*REQUESTS, *SCALARS, "t"})


class TakesLong(Exception):
    """A submission takes seconds to prepare."""


class Resolver:
    """The six steps for the submissions of one user."""

    def __init__(
        self, prepared: PreparedClasses, user: str, groups: Sequence[str], *, jsv: str = "", ask: Ask | None = None,
        room: int | None = None,
    ) -> None:  # fmt: skip
        """`jsv`: the name of the JSV that `ask` asks. `room`: letters that classes may give, steps counted in letters;
        None: any number.
        """
        classes = prepared.classes
        self._prepared, self._classes = prepared, classes
        self._own = prepared.of(user, groups)
        self._jsv, self._ask = jsv, ask
        self._room, self._given, self._jobs = room, 0, 0
        self._is_plain = not (classes.default_jc or classes.enforce_jc or classes.defaults or jsv)

    def resolve(self, record: jobs.Record, places: PositionMap, body: PlanJobBody) -> VerifyResult:
        """Raises InvalidJob, Forbidden, with the place in the text if known; TakesLong beyond the room."""
        original, record = record, with_attributes(record, self._classes.vocabulary.complexes)
        if self._is_plain and not (body.client_jsv or body.edits or names_class(record)):
            return _AS_GIVEN if record is original else VerifyResult(record, None, [])
        draft = DraftRecord(
            record=record, edits=changes_of(body.edits), client_jsv=body.client_jsv, usual_name=body.usual_name,
            hold=body.hold,
        )  # fmt: skip
        result = self._steps(draft)
        if isinstance(result, SubmissionRefusal):
            wrong = result.error
            jobs.locate(wrong, places)
            raise wrong
        same = result.record is original
        return VerifyResult(None if same else result.record, self._stored(result), list(result.notices))

    def resolve_waiting(self, draft: DraftRecord, subject: str) -> tuple[jobs.Record, Resolution | None]:
        """For another class: steps 1 to 4, and 6. `subject`: what errors refuse. Raises InvalidJob, Forbidden."""
        result = self._steps(draft)
        if isinstance(result, SubmissionRefusal):
            raise replace(result, asked=subject).error
        return result.record, self._stored(result)

    def _steps(self, draft: DraftRecord) -> ResolvedRecord | SubmissionRefusal:
        classes = self._classes
        rules = SubmissionRules(
            default_jc=classes.default_jc,
            enforce_jc=classes.enforce_jc,
            defaults=classes.defaults,
            complexes=classes.vocabulary.complexes,
            jsv=self._jsv,
        )
        steps = resolve(draft, rules, self._derive, self._prepared.given)
        try:
            view = next(steps)
            while True:
                assert self._ask is not None  # noqa: S101 - the rules name a JSV
                view = steps.send(self._ask(view))
        except StopIteration as end:
            result: ResolvedRecord | SubmissionRefusal = end.value
            return result

    def _stored(self, resolved: ResolvedRecord) -> Resolution | None:
        snapshot, origins = (
            resolved.snapshot,
            {name: str(origin) for name, origin in resolved.origins.items()},
        )
        if snapshot is None:
            return Resolution(origins=origins) if origins else None
        return Resolution(
            job_class=snapshot.name, revision=snapshot.revision, origins=origins,
            snapshot=self._prepared.text_of(snapshot),
        )  # fmt: skip

    def usable(self, listed: str) -> str | None:
        """As `ClassesOfUser.usable`."""
        return self._own.usable(listed)

    def _derive(self, name: str) -> ClassSnapshot | ClassRefusal:
        derived = self._own.get(name)
        if isinstance(derived, ClassSnapshot):
            self._given += self._prepared.size_of(derived)
            if self._room is not None and self._given + self._jobs * _LETTERS_OF_STEPS > self._room:
                raise TakesLong
            self._jobs += 1
            if self._given > _MOST_GIVEN:
                raise TooLarge(
                    f"The classes of these jobs give them more than {_MOST_GIVEN:,} letters in all.",
                    hint="Submit them in parts, or as one description with Parameters.",
                    limit=_MOST_GIVEN,
                )
        return derived

    def resolve_all(self, body: PlanJobBody) -> list[VerifyResult]:
        """Raises as reading and `resolve`; of a batch with the `job`."""
        entries = entries_of(body)
        if len(entries) == 1:
            return [self._resolve_entry(body, entries[0])]
        verified = []
        for position, entry in enumerate(entries):
            with in_batch(position):
                verified.append(self._resolve_entry(body, entry))
        return verified

    def _resolve_entry(self, body: PlanJobBody, entry: str | jobs.Record) -> VerifyResult:
        record, places, _ = read_entry(body, entry)
        return self.resolve(record, places, body)


def entries_of(body: PlanJobBody) -> Sequence[str | jobs.Record]:
    """Raises InvalidRequest."""
    forms = [x for x in (body.text, body.texts, body.jobs) if x is not None]
    if len(forms) != 1:
        raise InvalidRequest("Give exactly one of text, texts and jobs.")
    if not forms[0] and body.text is None:
        raise InvalidRequest("The batch is empty.")
    return [body.text] if body.text is not None else body.texts or body.jobs or []


def read_entry(body: PlanJobBody, entry: str | jobs.Record) -> tuple[jobs.Record, PositionMap, Form]:
    """With places of its attributes and its language. Raises SyntaxFault, TooLarge."""
    if not isinstance(entry, str):
        return entry, NO_POSITIONS, "json"
    parsed = jobs.read_description(
        entry, form=cast("Form | None", body.form or None), limits=jobs.ARRAY_LIMITS
    )
    return parsed.record, parsed.positions, parsed.form


def value_problem(complexes: Complexes, attribute: str, value: JobValue) -> str:
    """Why no job can have this value, in sentences, or ""."""
    if attribute not in _JUDGED or "%" in str(value):
        return ""  # members of an array have values of their own
    requests = parts_of(attribute, value) if attribute in REQUESTS else {}
    for name, amount in requests.items():
        if words := request_problem(complexes, name, amount):
            return words
    if attribute == "l_soft":
        return ""
    if requests:  # free memory is Memory, too
        value = {
            MEMORY if complexes.canonical(name) in FREE_MEMORY else name: amount
            for name, amount in requests.items()
        }
    try:
        jobs.read_job(record_of({}, {attribute: value}, complexes)[0] if value else {}, whole=False)
    except LodesmanError as wrong:
        request = ", ".join(f"{name}={amount}" for name, amount in requests.items())
        return f"{request}: {wrong.message} {wrong.hint}".strip(": ")
    return ""


def default_faults(defaults: Mapping[str, str], complexes: Complexes) -> Iterator[tuple[str, str]]:
    """(system default, why no job could have it, without a full stop)."""
    for name, text in defaults.items():
        if name not in KINDS:
            yield name, "jobs have no such attribute in Grid Engine"
            continue
        try:
            jobs.read_job(record_of({}, {name: text}, complexes)[0], whole=False)
            if words := value_problem(complexes, name, text):
                yield name, words.rstrip(".")
        except InvalidJob as wrong:
            yield name, wrong.message.rstrip(".")
        except UnreadableValue as wrong:
            yield name, str(wrong)


def name_writer(wrong: InvalidJob, resolution: Resolution | None) -> None:
    """Which JSV wrote a refused value: the user does not know it."""
    attribute = str(wrong.data.get("attribute", ""))
    writer = "" if resolution is None else resolution.origins.get(attribute, "")
    if "JSV" in writer:
        wrong.hint = f"{wrong.hint} It is from the {writer}.".lstrip()


@contextmanager
def in_batch(position: int) -> Iterator[None]:
    """Name the job of a batch in what is raised."""
    try:
        yield
    except LodesmanError as wrong:
        wrong.message = f"Job {position} of the batch: {wrong.message}"
        data: Mapping[str, Any] = wrong.data
        wrong.data = {**data, "job": position}
        raise
