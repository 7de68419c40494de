"""The dearest quota sets, job classes and answers of JSVs: what the others wait for meanwhile takes at most 50 ms of CPU."""

from __future__ import annotations

from time import process_time

import pytest
from tests.conftest import untraced
from tests.kits.cost import slowness

from lodesman.base.errors import SyntaxFault, TooLarge
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.quota_book import QuotaBook
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import EditEntry, Give, classes_of, merge
from lodesman.languages.jobclass.editing import Author, edit_classes
from lodesman.languages.jobclass.request import EntryVerb
from lodesman.languages.quota.matching import _MOST, check_size, prepare_patterns
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.server.http.jobs import _LARGE
from lodesman.server.jsv.parameters import JsvContext, Parameters
from lodesman.server.jsv.protocol import Dialogue
from lodesman.server.writer import resolving
from lodesman.server.writer.resolving import Resolver, TakesLong
from lodesman.wire.requests import SubmitBody

CPU_SECONDS = 0.05
VOCABULARY = Vocabulary()
KEY = TaskQueueKey(owner="a" * 64, group="g", vo="v", pe="p*", cores=4, memory_mb=100)
PLACE = RunPlace("North", "ce", "q" * 64, "h" * 64)


def filled(head, part, tail, *, count=10**9, letters=10**9):
    """As many parts as there is room for, each with its number in it."""
    found, size, number = [head], len(head) + len(tail), 0
    while number < count and size + len(more := part.replace("#", str(number))) <= letters:
        found.append(more)
        size += len(more)
        number += 1
    return "".join(found) + tail


def of_users(part, what):
    return filled("limit users ", part, "x to slots=1\n", count=_MOST[what] - 1)


QUOTAS = {
    "names": of_users("u#,", "names"),
    "patterns": of_users("*a*b*#*,", "patterns"),
    "long patterns": of_users(f"#{'*a?' * 80}*,", "patterns"),
    "lists": of_users("@g#*,", "patterns"),
    "excluded": of_users("!*a*#,", "patterns"),
    "hosts": filled("limit hosts ", "*H*#*,", "x to slots=1\n", count=_MOST["patterns"] - 1),
    "PEs": filled("limit pes ", "p[#]*,", "x to slots=1\n", count=_MOST["patterns"] - 1),
    "classes": filled("limit jcs ", "c#*.*,", "x to slots=1\n", count=_MOST["patterns"] - 1),
    "rules": filled("", "limit users u# to slots=1\n", "", count=_MOST["rules"]),
    "rules with patterns": filled("", "limit users {a#*} hosts {*} to slots=1\n", "", count=_MOST["patterns"] - 1),
    "limits": filled("limit to ", "slots=#,", "slots=1\n", count=_MOST["limits"] - 1),
    "limits by load": filled("limit hosts {*} to slots=$num_proc*2", "+$num_proc*2", "\n", letters=300_000),
}  # fmt: skip
CLASSES = {
    "context": filled("ac {+~-}k=1", ",k#=1", "", letters=_LARGE - 100),
    "variables": filled("v {+~-}k=1", ",k#=1", "", letters=_LARGE - 100),
    "resources": filled("l_hard {+~-}k=1", ",k#=1", "", letters=_LARGE - 100),
    "arguments": filled("CMDARG {+~-}a", ",a", "", letters=_LARGE - 100),
    "queues": filled("q_hard {+~-}q", ",q#", "", letters=_LARGE - 100),
    "files": filled("o {+~-}/f", ",/f#", "", letters=_LARGE - 100),
}


def seconds_of(act):
    """The least of three."""
    least = 9.0
    for _ in range(3):
        begun = process_time()
        act()
        least = min(least, process_time() - begun)
        if least < CPU_SECONDS:
            break
    return least


def read(body):
    faults = []
    sets = read_quota_sets(f"{{\nname s\nenabled TRUE\n{body}}}\n", VOCABULARY.complexes, faults=faults)
    assert faults == []
    return sets


def asked(book):
    """What a new user, and a new host, are held against."""
    jobs, there = book.of_key(KEY), book.of_place(PLACE)
    for number in range(len(book.rules)):
        if jobs.bits & there.bits & 1 << number:
            jobs.values(number), jobs.needs(number), there.values(number), there.limits(number)


def seconds_of_quotas(body):
    sets = read(body)
    check_size(sets)
    prepare_patterns(sets)
    built = seconds_of(lambda: QuotaBook(sets, VOCABULARY))
    return max(built, seconds_of(lambda: asked(QuotaBook(sets, VOCABULARY))) - built)


def classes_with(body):
    text = f"jcname c\n{body}\n"
    found = edit_classes(classes_of([], VOCABULARY), text, Author(name="ann"), "add")
    assert found.faults == ()
    return found.after


def submission(**more):
    return SubmitBody(jobs=[{"Executable": "x", "JobClass": "c", **more}])


@pytest.mark.slow
def test_nothing_that_waits_for_quota_sets_or_classes_takes_long():
    most = 2 * CPU_SECONDS * slowness()
    with untraced():
        spent = {f"quotas, {name}": seconds_of_quotas(body) for name, body in QUOTAS.items()}
        for name, body in CLASSES.items():
            classes = classes_with(body)
            resolver = Resolver(PreparedClasses(classes), "ann", ())
            spent[f"class, {name}"] = seconds_of(lambda use=resolver: use.resolve_all(submission()))
    assert {name: seconds for name, seconds in spent.items() if seconds > most} == {}


@pytest.mark.parametrize("what", _MOST)
def test_quota_sets_that_are_too_dear_are_refused_with_what_to_do(what):
    body = {
        "rules": filled("", "limit users u# to slots=1\n", "", count=_MOST[what] + 1),
        "limits": filled("limit to slots=1", ",slots=#", "\n", count=_MOST[what]),
        "names": filled("limit users u", ",u#", " to slots=1\n", count=_MOST[what]),
        "patterns": filled("limit users u*", ",u#*", " to slots=1\n", count=_MOST[what]),
    }[what]
    with pytest.raises(
        TooLarge, match=f"at most {_MOST[what]:,} {what}; with these they have {_MOST[what] + 1:,}"
    ) as no:
        check_size(read(body))
    assert "Put users on user lists" in no.value.hint


def test_a_name_that_is_longer_than_any_name_is_a_fault():
    faults: list[SyntaxFault] = []
    text = "{\nname s\nlimit users " + "*a" * 200 + " to slots=1\n}\n"
    read_quota_sets(text, VOCABULARY.complexes, faults=faults)
    assert "has 400 letters" in faults[0].message
    assert "at most 255" in faults[0].hint


def test_a_variant_that_gives_too_much_is_refused_by_name():
    """Each submission keeps what its class gives."""
    long = filled("[v=k=1", ",k#=1", "]", letters=1 << 17)
    text = f"jcname c\nvariant_list default,v\nac {{+}}k=1,{long}\n"
    found = edit_classes(classes_of([], VOCABULARY), text, Author(name="ann"), "add")
    assert [fault.data["line"] for fault in found.faults] == [1]
    assert "c.v gives a job 1" in found.faults[0].message
    assert "letters; at most 65,536." in found.faults[0].message


def test_jobs_of_large_classes_are_prepared_beside_the_loop():
    classes = classes_with(CLASSES["context"])
    room = classes.get("c", "ann").size
    assert 0 < room <= 2 * _LARGE
    resolver = Resolver(PreparedClasses(classes), "ann", (), room=room)
    resolver.resolve_all(submission())
    with pytest.raises(TakesLong):
        resolver.resolve_all(submission())


def test_many_jobs_of_a_small_class_are_prepared_beside_the_loop():
    classes = classes_with("N S")
    resolver = Resolver(PreparedClasses(classes), "ann", (), room=_LARGE)
    with pytest.raises(TakesLong):
        resolver.resolve_all(SubmitBody(jobs=[{"Executable": "x", "JobClass": "c"}] * 400))


def test_the_classes_of_a_submission_give_so_much_and_no_more(monkeypatch):
    classes = classes_with(CLASSES["context"])
    monkeypatch.setattr(resolving, "_MOST_GIVEN", 2 * classes.get("c", "ann").size)
    resolver = Resolver(PreparedClasses(classes), "ann", ())
    resolver.resolve_all(submission())
    resolver.resolve_all(submission())
    with pytest.raises(TooLarge, match="letters in all") as no:
        resolver.resolve_all(submission())
    assert "Parameters" in no.value.hint


class Counted:
    """The canonical name of a key, and how often it was asked for."""

    def __init__(self):
        self.calls = 0

    def __call__(self, _name, key):
        self.calls += 1
        return key.lower()


def test_a_list_and_its_edits_are_joined_in_as_many_steps_as_they_are_long():
    count, canonical = 500, Counted()
    values = {"l_hard": {f"K{number}": "1" for number in range(count)}}
    changes = [
        Give(attribute="l_hard", value={f"k{number}": "2" for number in range(count)}),
        *(
            EditEntry(verb=verb, attribute="l_hard", key=f"k{number}", value="3")
            for verb in EntryVerb
            for number in range(0, count, 2)
        ),
    ]
    merged = merge(values, changes, canonical)
    assert merged.faults == ()
    assert merged.values["l_hard"] == {f"K{number}": "2" for number in range(1, count, 2)}
    assert canonical.calls < 10 * count


def test_a_jsv_does_not_let_arguments_grow_for_ever():
    given = Parameters(context=JsvContext.SERVER, user="ann", group="g", client="qmaster", command="x")
    dialogue = Dialogue(given, "jsv")
    dialogue.take_line("STARTED")
    for _ in range(11):
        dialogue.take_line("PARAM CMDARGS 100000")
        dialogue.take_line("PARAM CMDARGS 0")
    assert dialogue.has_ended()
    assert "JSV adds more than 1000000 arguments" in dialogue.outcome().message
