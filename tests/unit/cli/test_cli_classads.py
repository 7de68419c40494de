"""`lode classad`: values and clauses of ads, faults with file, line and column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SITE = '[Memory = 8; Tags = {"a"}; Requirements = TARGET.Memory <= MY.Memory]'
JOB = 'Memory = 4\nRequirements = member("a", TARGET.Tags) && Loop\nLoop = Loop\n'


@pytest.fixture
def ads(home):
    for name, text in {"site": SITE, "job": JOB, "bad": "a = 1\nb = (2\n", "none": "a = 1"}.items():
        Path(f"{name}.ad").write_text(text)


def test_a_match_shows_each_clause(ads, lode):
    shown = lode("classad", "match", "job.ad", "site.ad")
    assert shown.code == 1
    assert 'true                  member("a", TARGET.Tags)  -             Tags = {"a"}' in shown.out
    assert "error (Loop -> Loop)" in shown.out
    assert "They do not match." in shown.out


def test_a_match_for_programs(ads, lode):
    shown = lode("classad", "match", "site.ad", "site.ad", "--json")
    assert shown.code == 0
    found = json.loads(shown.out)
    assert found["matches"] is True
    assert found["sides"][0]["clauses"] == [
        {
            "clause": "TARGET.Memory <= MY.Memory",
            "value": "true",
            "own": [{"name": "Memory", "value": "8"}],
            "other": [{"name": "Memory", "value": "8"}],
        }
    ]


def test_values_of_attributes_and_expressions(ads, lode):
    assert json.loads(lode("classad", "eval", "site.ad", "job.ad", "--json").out)[2] == {
        "name": "Requirements",
        "value": "true",
    }
    assert "Memory + 1  9" in lode("classad", "eval", "site.ad", "-e", "Memory + 1").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval", "bad.ad"), "bad.ad:2:7: "),
        (("match", "site.ad", "bad.ad"), "bad.ad:2:7: "),
        (("eval", "site.ad", "-e", "1 +"), "--expression:1:4: "),
    ],
)
def test_faults(ads, lode, words, said):
    shown = lode("classad", *words)
    assert shown.code == 1
    assert said in shown.err
    assert shown.out == ""


def test_an_ad_without_requirements(ads, lode):
    assert (
        "none.ad has no Requirements: it matches nothing."
        in lode("classad", "match", "none.ad", "site.ad").out
    )


def test_a_file_may_have_several_ads(ads, lode):
    Path("two.ad").write_text("A = 1;\n# b\n\nA = B\nB = 2\n")
    shown = lode("classad", "eval", "two.ad").out
    assert "two.ad, ad 1 of 2:" in shown
    assert "two.ad, ad 2 of 2:" in shown
    assert json.loads(lode("classad", "eval", "two.ad", "-e", "A", "--json").out) == [
        [{"name": "A", "value": "1"}],
        [{"name": "A", "value": "2"}],
    ]
    refused = lode("classad", "match", "two.ad", "site.ad")
    assert (refused.code, refused.out) == (1, "")
    assert "two.ad has 2 ads; one is needed here" in refused.err


def test_functions_that_are_not_known_are_named(lode, tmp_path):
    """Ads of HTCondor have some; their value alone says `error`."""
    job, slot = tmp_path / "job.ad", tmp_path / "slot.ad"
    job.write_text(
        "[ M = 1; A = strcat(1); Requirements = TARGET.Memory >= userHome(M, {256})"
        ' && {sumFrom(1, [b = regexp("(a)\\\\1", "a"); c = size()])} is {}; ]'
    )
    slot.write_text("[ Memory = 4096; Requirements = true; ]")
    warnings = [
        f"lode: {job}: warning: {why}, so that call is error: see docs/how-to/classads.md"
        for why in (
            "there is no function userHome here",
            "there is no function sumFrom here",
            r"The regular expression '(a)\\1' cannot be read: references to groups \1 are not known here",
            "size cannot have 0 arguments",
        )
    ]
    for words in (["match", job, slot], ["match", slot, job], ["eval", job]):
        assert lode("classad", *map(str, words)).err.splitlines() == warnings
    done = lode("classad", "eval", str(slot), "--expression", "unresolved(1)", "--expression", "size({1})")
    (line,) = done.err.splitlines()
    assert line.startswith("lode: --expression: warning: there is no function unresolved here")
