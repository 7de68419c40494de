"""What a held job is advised: a submission with that change is taken. And all words are the same in each process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.base.errors import LodesmanError
from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.decide.submission import find_exclusions
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import classes_of
from lodesman.server.writer.prepare import prepare
from lodesman.wire.accounts import Principal
from lodesman.wire.requests import SubmitBody

ROOT = Path(__file__).resolve().parents[3]
ANN = Principal(kind="user", name="ann", vo="lab", groups=("g",), scopes=frozenset({"jobs:write"}))
TYPES = '[job_description]\nDisk = "number"\nRelease = "version"\nSoftware = "list"\n'
ODD = "mönd, 2"


def policy_of(*sites, pools):
    """Sites of one CE each, named after it, where each value grows with its number."""
    text = "".join(
        f"[site.{json.dumps(site, ensure_ascii=False)}]\nVO = ['lab']\nDisk = {number * 10}\n"
        f"Release = '6.{number}'\nSoftware = {['root', f'own{number}']}\nPlatform = 'el{7 + number % 3}'\n"
        f"[site.{json.dumps(site, ensure_ascii=False)}.ce.{json.dumps('c ' + site, ensure_ascii=False)}.queue.q]\n"
        f"CPUTime = {number * 1_000}\nMemory = {number * 500}\nNumberOfProcessors = {number}\n"
        f"Tag = {['a', 'b', 'c'][: number % 4]}\nRequiredTag = {['a'][: number % 2]}\n"
        for number, site in enumerate(sites, 1)
    )
    return Policy(
        load_resources([("s.toml", TYPES + text)]), submission_pools=dict.fromkeys(pools, PoolScope())
    )


BEFORE = policy_of("S1", "S2", "S3", "Gone", ODD, pools=("Local", "Far", "Old"))
NOW = policy_of("S1", "S2", "S3", pools=("Local", "Far"))


def names(*choices):
    return st.lists(st.sampled_from(choices), min_size=1, max_size=4, unique=True)


jobs = st.fixed_dictionaries(
    {"Executable": st.just("x"), "CPUTime": st.sampled_from([500, 2_500, 9_000])},
    optional={
        "Site": names("S1", "S2", "Gone", ODD),
        "BannedSite": names("S1", "S2", "S3", "Gone", ODD),
        "GridCE": names("c S1", "c S2", f"c {ODD}", "c Gone"),
        "SubmitPool": names("Local", "Old"),
        "Platform": names("el7", "el8", "vax"),
        "Tag": names("a", "b", "d"),
        "Memory": st.sampled_from([400, 1_200, 9_000]),
        "NumberOfProcessors": st.sampled_from([1, 2, 9]),
        "Requirements": st.fixed_dictionaries(
            {},
            optional={
                "Disk": st.sampled_from([5, 15, 99]),
                "Release": st.sampled_from(["6.1", "7.0"]),
                "Software": st.sampled_from([["own1"], ["own2", "fluka"], ["vi"]]),
                "Nothing": st.just(1),
            },
        ),
    },
)


def submit(description, policy, *, hold=False):
    body = SubmitBody(text=json.dumps(description), form="json", hold_if_impossible=hold)
    return prepare(body, ANN, policy, None, PreparedClasses(classes_of([], Vocabulary())))[0]


def changed(description, change):
    """The description with all steps of a change, by the values that programs get."""
    found = {**description, "Requirements": dict(description.get("Requirements", {}))}
    for step in change.steps:
        name = "Tag" if step.criterion == "RequiredTag" else step.criterion
        part, _, parameter = name.partition(".")
        where = found["Requirements"] if parameter else found
        if step.instead is None:
            del where[parameter or part]
        else:
            where[parameter or part] = step.instead
    return found


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(jobs)
def test_a_job_with_the_change_that_it_is_advised_is_taken(description):
    """Also one that names places which have gone since it was stored."""
    prepared = submit(description, BEFORE, hold=True)
    (cohort,), pools = prepared.cohorts, prepared.pools
    wanted = json.loads(pools[0].requirements) if pools else {}
    found = find_exclusions(cohort.key, wanted, NOW.vo_config("lab"))
    for change in found.job_changes():
        assert not submit(changed(description, change), NOW).cohorts[0].held
        assert change.change == [step.criterion for step in change.steps]


def test_what_is_gone_is_named():
    gone = {
        "Executable": "x",
        "Memory": 9_000,
        "Site": ["S3", "Gone"],
        "BannedSite": ["S2", "Gone"],
        "CPUTime": 1,
        "Tag": ["a"],
    }
    key = submit(gone, BEFORE, hold=True).cohorts[0].key
    (change,) = find_exclusions(key, {}, NOW.vo_config("lab")).job_changes()
    assert change.text == "Memory 9000 -> 1500 and Site without Gone"
    key = submit({**gone, "BannedSite": ["S3", "Gone"], "Memory": 1}, BEFORE, hold=True).cohorts[0].key
    texts = [one.text for one in find_exclusions(key, {}, NOW.vo_config("lab")).job_changes()]
    assert "BannedSite without S3, Gone and Site without Gone" in texts
    assert "Site -> S1 or S2" in texts


# --- the same words -------------------------------------------------------------------------------------

WORDS = ("red", "green", "blue", "grey", "gold", "pink", "teal")


def all_words():
    """Refusals and advice in worlds full of ties, and the faults of a configuration."""
    dice, said = random.Random(7), []

    def some(most=3):
        return sorted(dice.sample(WORDS, dice.randint(1, most)))

    def maybe(chance, **values):
        return {name: value for name, value in values.items() if dice.random() < chance}

    for _ in range(80):
        text = "[job_description]\nTyped = 'list'\n"
        sites = [f"S{number}" for number in range(dice.randint(2, 9))]
        for site in sites:
            values = maybe(
                0.8,
                Platform=some(),
                Tag=some(),
                Free=some(),
                Word=some(1)[0],
                Typed=some(),
                Number=dice.choice([1, 2]),
            )
            lines = (f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            text += f"[site.{site}.ce.c.queue.q]\n{''.join(lines)}"
        policy = Policy(
            load_resources([("s.toml", text)]), submission_pools=dict.fromkeys(WORDS, PoolScope())
        )
        requirements = maybe(0.5, Free=some(), Word=dice.choice(WORDS), Typed=some(), Number=9)
        job = maybe(0.3, Platform=some(), Tag=some(), BannedSite=dice.sample(sites, 2))
        job |= maybe(0.2, Site=some(), SubmitPool=dice.choice(["rad", "red"]))
        try:
            submit({"Executable": "x", "Requirements": requirements, **job}, policy)
        except LodesmanError as refused:
            said.append(json.dumps(refused.as_dict()))
    wrong = "".join(f"{word} = 1\n" for word in WORDS)
    wrong = f"[job_description]\nTyped = 'lots'\n[site.A]\nVO = 5\n[group.g]\n{wrong}"
    try:
        load_resources([("s.toml", wrong)])
    except LodesmanError as refused:
        said.append(json.dumps(refused.as_dict()))
    return "\n".join(said)


@pytest.mark.slow
def test_words_do_not_depend_on_the_order_of_sets():
    code = "from tests.unit.writer.test_suggestions import all_words; print(all_words())"
    found = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in range(3)
    ]  # fmt: skip
    assert found[0].count('"impossible"') > 20
    assert found[1:] == found[:1] * 2
