"""Reasons are values with a stable code and a sentence that names what was wanted and offered."""

import dataclasses
import json

import pytest

from lodesman.matching import reasons
from lodesman.matching.reasons import REASONS, Reason

EXAMPLES = [
    (reasons.WrongVO(wanted="atlas", offered="lhcb"), "the resource serves VO lhcb, not atlas"),
    (
        reasons.WrongGroup(wanted="bio", offered=("chem", "phys")),
        "the resource takes jobs of chem, phys, not of group bio",
    ),
    (reasons.WrongGroup(wanted="bio", offered=()), "the resource takes jobs of nothing, not of group bio"),
    (reasons.WrongOwner(wanted="a", offered="b"), "the pilot runs only jobs of b, not of a"),
    (
        reasons.PilotTypePrivate(wanted="private", offered=""),
        "the job needs a private pilot, this one is generic",
    ),
    (
        reasons.SiteNotListed(wanted=("A", "B"), offered=""),
        "the job runs only at A, B, not at an unnamed site",
    ),
    (reasons.SiteBanned(site="A"), "the job bans site A"),
    (reasons.CENotListed(wanted=("c",), offered=""), "the job runs only on CE c, not on an unnamed CE"),
    (reasons.PlatformMissing(wanted=("p",)), "the job needs platform p and the resource tells none"),
    (reasons.PlatformUnfit(wanted=("p",), offered=("q",)), "the job needs platform p, the resource has q"),
    (reasons.TagMissing(missing=("gpu",)), "the resource lacks tag gpu"),
    (reasons.RequiredTagMissing(missing=("mp",)), "the resource takes only jobs with tag mp"),
    (
        reasons.JobTypeNotOffered(wanted="MC", offered=("User",)),
        "the resource takes jobs of type User, not MC",
    ),
    (reasons.TooFewCores(wanted=8, offered=1), "the job needs 8 cores, the resource has 1"),
    (
        reasons.TooLittleMemory(wanted=4000, offered=2000),
        "the job needs 4000 MB of memory, the resource has 2000",
    ),
    (
        reasons.TooLittleCPUTime(wanted=9, offered=5),
        "the job needs 9 s of normalised CPU time, the resource has 5",
    ),
    (
        reasons.SubmitPoolNotServed(pool="0123456789abcdef"),
        "the queue does not meet the job's Requirements (SubmitPool 0123456789ab)",
    ),
    (
        reasons.SubmissionPoolMismatch(wanted=("gLite",), offered=""),
        "the job wants a pilot of submission pool gLite, this one came through none",
    ),
    (reasons.Blocked(limit="max 10 of bio"), "the limit max 10 of bio is full"),
    (reasons.Blocked(limit=""), "a limit is full"),
    (reasons.Empty(), "no job waits in the task queue"),
]


@pytest.mark.parametrize(("reason", "sentence"), EXAMPLES, ids=lambda value: getattr(value, "code", ""))
def test_the_sentence(reason, sentence):
    assert str(reason) == sentence


@pytest.mark.parametrize("reason", [reason for reason, _ in EXAMPLES], ids=lambda reason: reason.code)
def test_as_json_values(reason):
    values = reason.as_dict()
    assert values["code"] == reason.code
    assert values["message"] == str(reason)
    assert set(values) == {"code", "message", *(field.name for field in dataclasses.fields(reason))}
    assert json.loads(json.dumps(values))["code"] == reason.code


def test_the_set_is_closed_and_every_reason_has_an_example():
    assert {type(reason) for reason, _ in EXAMPLES} == set(REASONS)
    # By name: a class with slots is made twice, and the first one lingers.
    assert {one.__name__ for one in Reason.__subclasses__()} == {one.__name__ for one in REASONS}


def test_codes_are_different_and_stable_words():
    codes = [reason.code for reason in REASONS]
    assert len(set(codes)) == len(codes)
    assert all(code and code == code.lower() and " " not in code for code in codes)


def test_reasons_are_frozen_values():
    one = reasons.SiteBanned(site="A")
    assert one == reasons.SiteBanned(site="A")
    assert len({one, reasons.SiteBanned(site="A"), reasons.SiteBanned(site="B")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.site = "B"  # type: ignore[misc]


def test_long_lists_are_cut():
    sites = tuple(f"S{n}" for n in range(500))
    text = str(reasons.SiteNotListed(wanted=sites, offered="X"))
    assert text == "the job runs only at S0, S1, S2, S3, S4 and 495 more, not at X"
