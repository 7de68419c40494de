"""Job classes with many names, variants and entries: what each costs is counted, and too many are refused by name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kits.jobclass_kit import class_of

from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import ClassSnapshot, access, check_template, classes_of, editing
from lodesman.languages.jobclass.editing import Author, edit_classes
from lodesman.server.writer.resolving import Resolver
from lodesman.wire.requests import SubmitBody

MANAGER = Author(name="root", is_manager=True)
EMPTY = classes_of([], Vocabulary())


class CountedNames(tuple[str, ...]):
    """Names, and how often somebody went through them."""

    __slots__ = ()
    walks = 0

    def __iter__(self):
        type(self).walks += 1
        return super().__iter__()


def names(count, prefix="g"):
    return [f"{prefix}{number}" for number in range(count)]


def with_names(count, attribute="user_lists", last="%ann"):
    return replace(class_of("m", N="S"), **{attribute: (*names(count), last)})


def faults_of(text, before=EMPTY, how="add", by=MANAGER):
    """The line and the message of each fault, without its place."""
    edit = edit_classes(before, text, by, how)
    return [(fault.data["line"], fault.message.partition(": ")[2]) for fault in edit.faults]


# --- who owns and may use a class -----------------------------------------------------------------


@pytest.mark.parametrize(("attribute", "last"), [("user_lists", "%ann"), ("xuser_lists", "%bob")])
def test_the_jobs_of_a_submission_go_through_the_names_of_a_class_once(attribute, last):
    variants = ["default", *names(20, "v")]
    job_class = class_of("m", ",".join(variants), N="S")
    listed = CountedNames((*names(1_000), last))
    resolver = Resolver(
        PreparedClasses(classes_of([replace(job_class, **{attribute: listed})], Vocabulary())),
        "ann",
        ("physics",),
    )
    CountedNames.walks = 0
    jobs = [{"Executable": "x", "JobClass": "m", "Variant": one} for one in variants * 2]
    found = resolver.resolve_all(SubmitBody(jobs=jobs))
    assert [one.resolution.job_class for one in found] == [f"m.{one}" for one in variants * 2]
    assert CountedNames.walks == 1


@pytest.mark.parametrize("attribute", ["owner", "user_lists", "xuser_lists"])
def test_a_class_has_at_most_500_names_of_each_kind(attribute):
    text = "jcname m\nN S\n{} {}\n"
    assert faults_of(text.format(attribute, ",".join(names(500)))) == []
    ((line, words),) = faults_of(text.format(attribute, ",".join(names(501))))
    assert (line, words.partition(".")[0]) == (3, f"{attribute} of m has 501 names; at most 500")
    by = Author(name="ann")
    is_owner = attribute == "owner"  # who adds it is one, too
    found = faults_of(text.format(attribute, ",".join(names(500))), by=by)
    assert [words.partition(";")[0] for _, words in found] == ["owner of m has 501 names"] * is_owner


@pytest.mark.parametrize("attribute", ["owner", "user_lists", "xuser_lists"])
def test_a_name_in_a_class_has_at_most_255_letters(attribute):
    assert faults_of(f"jcname m\n{attribute} {'a' * 255}\n") == []
    words = f"{attribute} has the name {'a' * 37}... of 256 letters; at most 255."
    assert faults_of(f"jcname m\n{attribute} b,{'a' * 256}\n") == [(2, words)]


@pytest.mark.parametrize("attribute", ["owner", "user_lists", "xuser_lists"])
def test_a_stored_class_with_more_names_is_of_use_until_it_is_changed(attribute):
    last = "%bob" if attribute == "xuser_lists" else "%ann"
    before = classes_of([with_names(20_000, attribute, last)], Vocabulary())
    assert isinstance(before.get("m", "ann"), ClassSnapshot)
    assert faults_of("jcname other\n", before) == []
    ((line, words),) = faults_of("jcname m\nN T\n", before, "change")
    assert (line, words.partition(".")[0]) == (1, f"{attribute} of m has 20,001 names; at most 500")
    assert faults_of(f"jcname m\nN T\n{attribute} NONE\n", before, "change") == []


# --- what is suggested to whom no queue takes -----------------------------------------------------


class CountedClasses(dict[str, object]):
    """Classes by name, and how often one was looked up."""

    looks = 0

    def get(self, key, default=None):
        self.looks += 1
        return super().get(key, default)


def suggested(found, listed="ANY_JC", *, groups=()):
    """What is suggested to ann, and how often a class was looked up for it."""
    by_name = CountedClasses({one.name: one for one in found})
    now = replace(EMPTY, by_name={**EMPTY.by_name})
    resolver = Resolver(PreparedClasses(replace(now, by_name=by_name)), "ann", groups)
    return [resolver.usable(listed) for _ in range(3)][-1], by_name.looks


def of_others(name, variants="default"):
    return replace(class_of(name, variants), user_lists=("others",))


def shut(name, *besides):
    one = class_of(name, ",".join(["default", *names(100, "v")]))
    return replace(one, disabled=frozenset(one.variants) - {*besides})


@pytest.mark.parametrize("listed", ["ANY_JC", "b"])
def test_a_class_is_judged_once_whatever_variants_it_has(listed):
    many = ",".join(["default", *names(500, "v")])
    found, looks = suggested([of_others("a", many), of_others("b", many), of_others("c", many)], listed)
    assert found is None
    assert looks <= 3


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [("ANY_JC", "b.v7"), ("a", None), ("b", "b.v7"), ("b.v7", "b.v7"), ("b.v8", None), ("b.gone", None), ("b.", None),
     ("c", None), ("d", "d"), ("d.default", "d.default"), ("gone", None), ("template", None), ("NO_JC", "")],
)  # fmt: skip
def test_the_first_variant_that_is_enabled_is_suggested(listed, wanted):
    found = [class_of("template"), shut("a"), shut("b", "v7"), of_others("c"), class_of("d")]
    assert suggested(found, listed)[0] == wanted


def test_where_many_classes_are_for_others_any_class_is_suggested():
    """So that no submission waits for it."""
    one = of_others("c")
    found = [replace(one, name=f"c{number:04}") for number in range(5_000)]
    last, looks = suggested([*found, class_of("d")])
    assert last == "ANY_JC"
    assert looks < 3_000
    assert suggested([*found[:1_000], class_of("d")])[0] == "d"


# --- variants and entries -------------------------------------------------------------------------


class CountedKeys:
    """The canonical name of a key, and how often it was asked for."""

    calls = 0

    def __call__(self, _name, key):
        self.calls += 1
        return key


def entries(count, value="1"):
    return ",".join(f"k{number}={value}" for number in range(count))


def text_of(variants, lists, more=""):
    return f"jcname m\nvariant_list {','.join(['default', *names(variants, 'v')])}\nac {lists}{more}\n"


@pytest.mark.parametrize("more", ["", ",[v1={~}k1=2]", ",[v1=k1=2],[v2=NONE]"])
def test_a_value_of_many_variants_is_held_against_the_template_once(more):
    template = class_of("template", ac=entries(50))
    variants = ",".join(["default", *names(200, "v")])
    job_class, canonical = class_of("m", variants, ac=entries(50, "2") + more), CountedKeys()
    found = check_template(template, job_class, canonical)
    assert canonical.calls < 1_000
    assert list(found) == list(job_class.variants)
    plain = {str([one.sentence for one in found[variant]]) for variant in ("default", "v0", "v199")}
    assert plain == {str([f"ac: k{number} may not be changed" for number in range(50)])}
    assert bool(more) == (found["v1"] != found["v0"])


def test_of_a_variant_a_hundred_faults_are_said():
    """Each is said again for each variant, and each class, that has it."""
    before = classes_of(
        [class_of("template", ac=entries(300)), class_of("m", "default,v", ac="x")], Vocabulary()
    )
    assert before.by_name["m"].conflicts == {"default", "v"}
    assert {variant: len(said) for variant, said in before.conflicts_of("m").items()} == {
        "default": 100,
        "v": 100,
    }
    edit = edit_classes(before, text_of(200, "y"), MANAGER, "change")
    assert len(edit.faults) == 100
    assert all(len(fault.data["variants"]) <= 20 for fault in edit.faults)


def test_a_changed_template_says_of_a_class_three_things_and_how_many_more():
    before = classes_of([class_of("m", ac="x")], Vocabulary())
    (notice,) = edit_classes(before, f"jcname template\nac {entries(9)}\n", MANAGER, "change").notices
    assert notice.message.endswith(
        "ac: k0 may not be removed; ac: k1 may not be removed; ac: k2 may not be removed and 7 more."
    )


def test_the_lists_of_all_variants_have_at_most_100_000_entries():
    assert faults_of(text_of(99, entries(1_000))) == []
    for text in (
        text_of(100, entries(1_000)),
        text_of(999, entries(101)),
        text_of(99, entries(1_000), f",[v1={entries(1_001)}]"),
    ):
        ((line, words),) = faults_of(text)
        assert (line, "entries in its " in words, "at most 100,000. Make several classes" in words) == (
            1,
            True,
            True,
        )


def test_what_variants_have_is_held_against_at_most_100_000_entries_of_the_template():
    before = classes_of([class_of("template", ac="{+}" + entries(1_000))], Vocabulary())
    brackets = [f",[v{number}=NONE]" for number in range(101)]
    assert faults_of(text_of(101, "NONE", "".join(brackets[:100])), before)[0][1].startswith(
        "The template does not"
    )
    ((line, words),) = faults_of(text_of(101, "NONE", "".join(brackets)), before)
    assert (line, "are held against 101,000 entries of the template" in words) == (1, True)


def test_a_template_is_held_against_the_values_of_all_classes_at_most_300_000_times(monkeypatch):
    """Each value of an attribute counts once, whatever classes and variants have it: also that there is none."""
    monkeypatch.setattr(editing, "_MOST_COMPARED", 300)
    plain = [class_of(name, "default,v", N="S") for name in names(50)]
    text = f"jcname template\nac {{+~-}}{entries(100)}\n"
    assert faults_of(text, classes_of(plain, Vocabulary()), "change") == []
    own = [class_of(name, "default,v", ac=f"{{+}}x={name},[v=x=v{name}]") for name in names(50)]
    before = classes_of(own, Vocabulary())
    ((line, words),) = faults_of(text, before, "change")
    what = "the entries of the template are held against the values of 51 classes, 10,100 times; at most 300."
    assert (line, words) == (1, f"{what} Give the template fewer entries.")
    assert faults_of(f"jcname template\nac {{+~-}}{entries(2)}\n", before, "change") == []
    now = classes_of([class_of("template", ac="{+~-}" + entries(100))], Vocabulary())
    texts = [f"jcname {name}\nac {{+}}x={name}\n" for name in names(4)]
    assert faults_of("".join(texts[:3]), now) == []
    ((line, words),) = faults_of("".join(texts), now)
    assert (line, words.endswith("4 classes, 400 times; at most 300. Change fewer classes at once.")) == (
        1,
        True,
    )


def test_what_several_classes_have_is_judged_once(monkeypatch):
    judged = []
    real = access._judge

    def judge(name, *more):
        judged.append(name)
        return real(name, *more)

    monkeypatch.setattr(access, "_judge", judge)
    same = [class_of(name, "default,v", ac="{+}x,[v=y]") for name in names(20)]
    before = classes_of([class_of("template", ac=entries(5)), *same], Vocabulary())
    assert judged == ["ac"] * 3, "of the template itself, too"
    assert all(before.by_name[name].conflicts == {"default", "v"} for name in names(20))


def test_a_stored_class_with_more_entries_is_of_use():
    dear = class_of("m", ",".join(["default", *names(500, "v")]), ac=entries(300))
    now = classes_of([dear], Vocabulary())
    assert isinstance(now.get("m.v7", "ann"), ClassSnapshot)
    assert faults_of("jcname other\n", now) == []


def test_an_amount_is_judged_once_whatever_variants_have_it():
    asked = []

    def problem(attribute, value):
        asked.append((attribute, value))
        return ""

    brackets = "".join(f",[v{number}=h_rt=60,slots=2]" for number in range(50))
    text = f"jcname m\nvariant_list {','.join(['default', *names(50, 'v')])}\nl_hard h_rt=60{brackets}\n"
    assert edit_classes(EMPTY, text, MANAGER, "add", problem=problem).faults == ()
    assert asked == [("l_hard", {"h_rt": "60"}), ("l_hard", {"slots": "2"})]


@pytest.mark.parametrize(
    ("text", "is_said"),
    [("m e", True), ("m UNSPECIFIED", False), ("m UNSPECIFIED,[v=e]", True),
     ("m e,[default=UNSPECIFIED],[v=UNSPECIFIED]", False),
     ("notify n", False), ("notify n,[v=y]", True), ("notify {+}UNSPECIFIED", False)],
)  # fmt: skip
def test_what_some_variant_gives_without_a_meaning_is_said(text, is_said):
    remarks = {"m": "No mail.", "notify": "No signal."}
    edit = edit_classes(
        EMPTY, f"jcname a\nvariant_list default,v\n{text}\n", MANAGER, "add", meaningless=remarks
    )
    assert edit.faults == ()
    assert bool(edit.notices) == is_said
