"""What is kept of job classes from one submission to the next: it changes no job, is small, and spares the six steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.kits.jobclass_kit import SECOND_NAMES, class_of

from lodesman.base.errors import LodesmanError
from lodesman.decide.submission import prepared_classes, resolve
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import classes_of
from lodesman.server.writer.resolving import Resolver
from lodesman.wire.job_classes import AttributeEdit
from lodesman.wire.requests import SubmitBody

# --- the same jobs and the same words, whatever is kept ---------------------------------------------

_LETTERS = st.sampled_from(["", "", "{~}", "{~}", "{-}", "{-~}"])
_LISTS = st.sampled_from(["", "{+}", "{+~}", "{+-~}"])
_WORDS = st.sampled_from(["a", "b", "3600", "1:0:0", "2-4", "/p", "h:/p", "y"])
_KEYS = st.sampled_from(["h_rt", "h_cpu", "h_vmem", "mem_free", "slots", "s", "re", "own"])
_AMOUNTS = st.sampled_from(["60", "1:0:0", "1G", "2", "INFINITY"])


def _written(*parts):
    return st.tuples(*parts).map("".join)


_FILES = _written(_LETTERS, _WORDS) | st.sampled_from(["UNSPECIFIED", "{+}UNSPECIFIED"])
_SCALARS = _FILES | st.just("{~}UNSPECIFIED")
_ENTRIES = st.lists(
    st.tuples(_LETTERS, _KEYS, _AMOUNTS),
    min_size=1,
    max_size=3,
    unique_by=lambda one: SECOND_NAMES.get(one[1], one[1]),
)
_REQUESTS = st.tuples(_LISTS, _ENTRIES).map(
    lambda held: held[0] + ",".join(f"{letters}{key}={amount}" for letters, key, amount in held[1])
)
_OF_CLASS = {
    **dict.fromkeys(("N", "CMDNAME", "P", "pe_name", "pe_range", "p", "r", "h", "t"), _SCALARS),
    "o": _FILES, "e": _FILES,
    "CMDARG": _written(_LISTS, _WORDS), "l_hard": _REQUESTS, "v": _REQUESTS, "ac": _REQUESTS,
}  # fmt: skip
_TEXTS = _WORDS | st.sampled_from(["", " ", "a\tb", "é"])
_NUMBERS = st.integers(-2, 9) | st.sampled_from([3600, "3600", "2-4", True])
_SAID = {
    **dict.fromkeys(("Executable", "JobName", "JobGroup", "PE", "StdOutput", "StdError", "StdInput"), _TEXTS),
    **dict.fromkeys(
        ("WallTime", "CPUTime", "Memory", "NumberOfProcessors", "Priority", "MaxAttempts"), _NUMBERS
    ),
    "Arguments": st.lists(_TEXTS, max_size=2), "Site": st.sampled_from(["", "North"]), "own": _TEXTS,
    "Consumables": st.lists(_written(_KEYS, st.just("="), _AMOUNTS), max_size=2),
    "Environment": st.dictionaries(st.sampled_from("AB"), _TEXTS, max_size=2),
    "GridEngine": st.lists(st.sampled_from(["m=be", "h=u", "N=x"]), max_size=2),
}  # fmt: skip
_NAMES = ["c", "c", "c", "c.large", "c.gone", "", 5]


@st.composite
def job_classes(draw):
    names = draw(st.lists(st.sampled_from(list(_OF_CLASS)), unique=True, max_size=5))
    values = {name: draw(_OF_CLASS[name]) for name in names}
    of_large = draw(st.sampled_from(["", ",[large=x]", ",[{~}large=x]"]))
    values = {name: text + of_large if name == "N" else text for name, text in values.items()}
    defaults = draw(st.sampled_from([{}, {}, {"N": "usual", "l_hard": "h_rt=60"}, {"A": "sge"}]))
    default_jc = draw(st.sampled_from(["", "c"]))
    return replace(
        classes_of([class_of("c", "default,large", **values)], Vocabulary()),
        defaults=defaults, default_jc=default_jc,
    )  # fmt: skip


@st.composite
def alike(draw):
    """Records with the same names."""
    names = draw(st.lists(st.sampled_from([*_SAID]), unique=True, max_size=5))
    at = draw(st.integers(0, len(names)))
    names[at:at] = ["JobClass"]
    said = {**_SAID, "JobClass": st.sampled_from(_NAMES)}
    return draw(st.lists(st.fixed_dictionaries({name: said[name] for name in names}), min_size=2, max_size=5))


def outcome(prepared, record, **more):
    """What becomes of a submission, its notices and words of refusal among it."""
    try:
        (result,) = Resolver(prepared, "ann", ("staff",)).resolve_all(SubmitBody(jobs=[record], **more))
    except LodesmanError as no:
        return type(no), no.message, no.hint, no.data
    return list((result.record or {}).items()), result.resolution, result.notices


_BESIDE = st.sampled_from(
    [{}, {}, {}, {"usual_name": True}, {"hold": True}, {"client_jsv": {"N": "j"}}, {"edits": [AttributeEdit("clearp", "N")]}]
)  # fmt: skip


@pytest.mark.slow
@given(job_classes(), alike(), _BESIDE)
def test_what_is_kept_changes_nothing(classes, records, beside):
    kept = PreparedClasses(classes)
    for record in [*records, *records]:
        whole = outcome(PreparedClasses(classes), record, **beside)
        assert outcome(kept, record, **beside) == whole
        assert outcome(kept, record) == outcome(PreparedClasses(classes), record)


def test_another_version_of_a_class_is_another_class():
    old, new = (classes_of([class_of("c", N=name)], Vocabulary()) for name in ("Old", "New"))
    record = {"JobClass": "c", "Executable": "x"}
    prepared = [PreparedClasses(one) for one in (old, new)]
    names = [dict(outcome(one, record)[0])["JobName"] for one in (*prepared, *prepared)]
    assert names == ["Old", "New", "Old", "New"]


# --- what it spares, and how much of it there is --------------------------------------------------


@pytest.fixture
def steps(monkeypatch):
    """The records that went through the six steps."""
    seen, run = [], resolve._Steps.run

    def noted(work, *args, **more):
        seen.append(work.draft.record)
        return run(work, *args, **more)

    monkeypatch.setattr(resolve._Steps, "run", noted)
    return seen


BENCH = class_of("c", "default,large", CMDNAME="{~}x", N="{~}s", l_hard="{+~}{~}h_rt=3600,h_vmem=1G")


def job(number, **more):
    return {
        "JobClass": "c", "JobName": f"n{number}", "Executable": "x", "Arguments": [str(number)], "CPUTime": 60 + number,
        "Memory": 5 + number, **more,
    }  # fmt: skip


def test_jobs_with_the_same_names_go_through_the_six_steps_once(steps):
    prepared = PreparedClasses(classes_of([BENCH], Vocabulary()))
    first = job(0, JobName="")  # an empty value is none: others come to another job
    assert dict(outcome(prepared, first)[0])["JobName"] == "s"
    made = [dict(outcome(prepared, job(number))[0]) for number in range(50)]
    assert [(one["JobName"], one["Arguments"], one["Memory"], one["WallTime"]) for one in made] == [
        (f"n{number}", [str(number)], 5 + number, 3600) for number in range(50)
    ]
    assert steps == [first, job(0)]
    outcome(prepared, job(1, StdOutput="o"))
    outcome(prepared, job(1, JobClass="c.large"))
    assert len(steps) == 4


@pytest.mark.parametrize(
    "values",
    [{"N": "s"}, {"CMDARG": "{+~}{~}a"}, {"l_hard": "h_cpu=60"}, {"pe_range": "{~}2"}],
)  # fmt: skip
def test_values_that_a_class_does_not_leave_open_are_seen(steps, values):
    prepared = PreparedClasses(classes_of([class_of("c", **values)], Vocabulary()))
    for number in range(3):
        outcome(prepared, job(number))
    assert len(steps) == 3


def test_few_variants_and_shapes_are_kept(monkeypatch):
    monkeypatch.setattr(prepared_classes, "_MOST_KEPT", 3)
    variants = ["default", *(f"v{number}" for number in range(1, 9))]
    prepared = PreparedClasses(classes_of([class_of("c", ",".join(variants), N="{~}s")], Vocabulary()))
    for variant in variants:
        outcome(prepared, job(1, JobClass=f"c.{variant}"))
    assert len(prepared._kept) <= 3
    for name in ("StdOutput", "StdError", "StdInput", "PE", "JobGroup"):
        outcome(prepared, job(1, JobClass="c.v8", **{name: "x"}))
    assert 0 < len(prepared._kept["c.v8"].shapes) <= 3


def test_what_is_large_is_not_kept():
    long = ",".join(f"k{number}" for number in range(2_000))
    prepared = PreparedClasses(classes_of([class_of("c", ac=long)], Vocabulary()))
    assert outcome(prepared, job(1)) == outcome(prepared, job(1))
    assert prepared._kept == {}
    prepared = PreparedClasses(classes_of([BENCH], Vocabulary()))
    outcome(prepared, job(1) | {f"own{number}": "x" for number in range(2_000)})
    assert prepared._kept["c.default"].shapes == {}
