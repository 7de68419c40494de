"""Expressions of jobs: what they see of a queue, which queues they admit, and why not the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.resources.conftest import load_toml, named
from tests.unit.resources.test_queue_table import TYPES, worlds

from lodesman.base.errors import InvalidJob
from lodesman.decide.resources import QueueTable, compile_requirements
from lodesman.decide.resources.expression import holds_at, read_expression
from lodesman.decide.resources.requirement import by_clause, without_clause
from lodesman.languages.classad import Ad, parse_ad
from lodesman.languages.classad.ads import ad_of
from lodesman.wire.vocabulary import Kind

WORLD = """
[job_description]
Disk = "number GB"
Software = "list"
Root = "version"
Net = "boolean"
[site.North]
Memory = 4000
Tag = ["cvmfs", "gpu"]
[site.North.ce.c1.queue.short]
Disk = "2 TB"
Software = "root"
Root = "6.30.0"
Net = true
Free = 7
[site.South]
Memory = 8000
[site.South.ce.c2.queue.long]
Disk = "ANY"
Free = "7"
Owner = "south"
Model = "AMD EPYC 7"
'GPU-model' = "A100"
[site.South.ce.c2.queue.odd]
Memory = 2000
Software = ["ANY", "root"]
"""
REQUEST = parse_ad(
    '[Owner = "ann"; RequestMemory = 3000; JobType = "User"; VO = "lab"; RequestTag = {"gpu"}]'
)


@pytest.fixture(scope="module")
def table():
    return QueueTable(load_toml(WORLD), "lab")


def compiled(table, text, request: Ad | None = REQUEST):
    return compile_requirements({"Constraint": text}, table.types, request)


def admitted(table, text):
    return [queue.queue for queue in named(table, table.eligible_mask(compiled(table, text)))]


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("Memory >= 4000", ["short", "long"]),
        ("TARGET.Memory >= 4000 && target.MEMORY < 5000", ["short"]),
        ('member("CVMFS", Tag)', ["short"]),
        ('identicalMember("CVMFS", Tag)', []),
        ("Disk >= 2000", ["short", "long"]),
        ("!(Disk >= 2000)", ["long"]),
        ('member("root", Software)', ["short", "odd"]),
        ("size(Software) == 1", ["short", "odd"]),
        ('versionGE(Root, "6.4")', ["short"]),
        ("Net", ["short"]),
        ("Free", ["short"]),
        ("Free > 5", ["short"]),
        ("isString(Free) && int(Free) > 5", ["long"]),
        ('Owner == "ann"', ["short", "long", "odd"]),
        ('TARGET.Owner == "south"', ["long"]),
        ("TARGET.Memory > RequestMemory", ["short", "long"]),
        ("Memory > MY.RequestMemory * 2", ["long"]),
        ("MY.Memory > 1", []),
        ("isUndefined(MY.Memory)", ["short", "long", "odd"]),
        ("allCompare(\"==\", RequestTag, Tag[1]) || Site == 'South'.x", ["short"]),
        ('Site == "South" && Queue != "odd" && CE == "c2" && VO == "lab"', ["long"]),
        ('CEName == "c2" && QueueName == "long"', ["long"]),
        ('regexp("EPYC [0-9]", Model)', ["long"]),
        ("'GPU-model' == \"a100\"", ["long"]),
        ("Nothing > 5", []),
        ("Nothing =?= undefined", ["short", "long", "odd"]),
        ("Nothing > 5 || Memory == 2000", ["odd"]),
        ("(Nothing ?: 3) == 3 && Memory > 5000", ["long"]),
        ('Memory > 5000 ? Free == "7" : Disk > 1', ["short", "long"]),
        ("undefined", []),
        ("error", []),
        ('"text"', []),
        ("0", []),
        ("0.5", ["short", "long", "odd"]),
        ("true", ["short", "long", "odd"]),
        ("Memory\n  >= 4000 // enough\n && Memory < 5000", ["short"]),
    ],
)  # fmt: skip
def test_what_an_expression_admits(table, text, queues):
    assert admitted(table, text) == queues


@pytest.mark.parametrize(
    ("text", "site", "reasons"),
    [
        ("Memory >= 8000", 0, ["Memory >= 8000 is false (Memory = 4000)"]),
        ("Root > 5", 1, ["Root > 5 is undefined (the queue declares no Root)"]),
        ("Free > 5", 1, ['Free > 5 is an error (Free = "7")']),
        ("Root > Net", 1, ["Root > Net is undefined (the queue declares no Net and no Root)"]),
        (
            "TARGET.Memory > RequestMemory && Free == 7 && Free == 8", 2,
            ["TARGET.Memory > RequestMemory is false (RequestMemory = 3000, Memory = 2000)",
             "Free == 7 is undefined (the queue declares no Free)",
             "Free == 8 is undefined (the queue declares no Free)"],
        ),
        ("1 > 2", 0, ["1 > 2 is false"]),
        ('"x"', 0, ['"x" is an error']),
        ("CurMatches < 5", 0, []),
        ("CurMatches < 5 && Memory > 5000", 0, ["Memory > 5000 is false (Memory = 4000)"]),
        (
            "(CurMatches < 5 && Memory > 5000) || Memory > 9000", 0,
            ["CurMatches < 5 && Memory > 5000 || Memory > 9000 is never true (Memory = 4000)"],
        ),
        ("Memory > 5000 && (Memory < 1 ? MaxJobs : false)", 1,
         ["Memory < 1 ? MaxJobs : false is false (Memory = 8000)"]),
        (f'member("{"x" * 100}", Tag)', 0,
         [f'member("{"x" * 69}... is false (Tag = {{"cvmfs", "gpu"}})']),
    ],
)  # fmt: skip
def test_reasons_name_the_clause_and_what_it_is_about(table, text, site, reasons):
    assert [str(one) for one in table.reasons(site, compiled(table, text))] == reasons


def test_each_clause_is_a_criterion_of_its_own(table):
    criteria = compiled(table, f"Memory >= 8000 && (Free == 7 || {'Net || ' * 20} Net)")
    first, second = by_clause(criteria)
    assert (first.parameter, first.wanted) == ("Constraint (Memory >= 8000)", ("Memory >= 8000",))
    assert second.parameter.startswith("Constraint (2: Free == 7 || Net")
    assert second.parameter.endswith("...)")
    assert [without_clause(f"Requirements.{one.parameter}") for one in (first, second)] == [
        "Requirements.Constraint"
    ] * 2
    assert without_clause("Requirements.Disk (old)") == "Requirements.Disk (old)"
    assert [bin(mask) for mask in table.failing((first, second))] == ["0b101", "0b110"]
    others = compile_requirements({"Memory": 1}, table.types)
    assert tuple(by_clause(others)) == others


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("Memory >", "line 1, column 9: the text ends where a value is needed"),
        ("Memory >\n  && 5", "line 2, column 3: && stands where a value is needed"),
        ("Memory > 4 GB", "line 1, column 12: GB stands after the end of an expression"),
        ("TARGET > 5", "line 1, column 1: TARGET alone"),
        ("5 > MY", "line 1, column 5: MY alone"),
        ("PARENT.x", "column 1: PARENT alone"),
        ("true && SiteAd", "column 9: SiteAd alone"),
        ('TARGET["Memory"]', "TARGET alone"),
        ("[a = 1].a", "an ad inside an expression of a job"),
        ("size([a = 1])", "column 6: an ad inside"),
        ('membr("a", Tag)', "there is no function membr here"),
        ('join(",", Tag)', "there is no function join here"),
        ("member(Tag)", "member cannot have 1 argument"),
        ("regexp(Model, Queue)", "a regular expression that is not written as a text"),
        ('regexp("(", Queue)', "cannot be read"),
        (r'regexp("(a)\\1", Queue)', r"references to groups \1 are not known here"),
        (
            r'!regexp("a", Queue) || replace("\\p{L}", Queue, "b") == "a"',
            r"properties \p{...} are not known here",
        ),
        ('regexp("[[:no:]]", Queue)', "there is no class [:no:]"),
        ('regexp("a", Queue, Model)', "a regular expression that is not written as a text"),
        ("countMatches(x, Tag) > 1", "there is no function countMatches here"),
        ('eval("1")', "there is no function eval here"),
        ("size() > 1", "size cannot have 0 arguments"),
        (f'regexp("{"a" * 101}", Queue)', "regular expressions of more than 100 characters"),
        (" && ".join(['regexp("a{60}", Queue)'] * 2), "regular expressions of more than 100"),
        ("size({" + "1, " * 260 + "1}) > 5", "more than 250 parts"),
        (" " * 4_097, "an expression of 4,097 characters; at most 4,096"),
        ("(" * 70 + "1" + ")" * 70, "nested more than 64 deep"),
        (5, "it is not a text"),
        (["Memory > 5", "[x = 1]"], "it is not a text"),
        ([], "it is not a text"),
    ],
)
def test_what_is_refused(table, value, words):
    with pytest.raises(InvalidJob) as caught:
        compiled(table, value)
    assert words in caught.value.message
    assert caught.value.data["attribute"] == "Requirements.Constraint"
    assert ("expression_line" in caught.value.data) == ("line" in words or "not a text" not in words)
    assert caught.value.hint


def test_a_long_list_of_the_job_cannot_be_asked_for(table):
    text = 'size(RequestTag) > 5 && member("t1", MY.RequestTag)'
    for count, fits in ((250, True), (251, False)):
        request = ad_of({"RequestTag": tuple(f"t{n}" for n in range(count))})
        if fits:
            assert table.eligible_mask(compiled(table, text, request)) == table.full
        else:
            with pytest.raises(InvalidJob, match="RequestTag of the job has 251 values; at most 250"):
                compiled(table, text, request)


def test_a_text_that_fills_its_limit_is_read_again_as_it_is_stored(table):
    """It is stored with blanks, so it is longer then."""
    parts = "&&".join(f'"{"x" * 30}{n}"!=Site' for n in range(80))
    text = f'{parts}&&"{"y" * (4_096 - len(parts) - 11)}"!=CE'
    (found,) = compiled(table, text + " " * (4_096 - len(text)))
    assert len(found.wanted[0]) > 4_096
    assert table.eligible_mask([found]) == table.full
    assert compile_requirements({"Constraint": [*found.wanted]}, table.types) == (found,)


def test_a_clause_that_comes_twice_is_one(table):
    names = [one.parameter for one in by_clause(compiled(table, "Memory > 5 && Net && memory>5"))]
    assert names == ["Constraint (Memory > 5)", "Constraint (Net)"]


def test_a_list_of_one_is_its_value(table):
    assert compiled(table, ["Memory > 5"]) == compiled(table, "Memory>5")


# --- canonical texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Memory>=4000", " ( memory >= 4000 ) "),
        ("TARGET.Memory >= 4000", "Memory >= 4000"),
        ("Memory > 5 && Disk > 6", "disk > 6 && MEMORY > 5 && Disk > 6"),
        ("Memory > 5 && (Disk > 6 && Net)", "Net && Memory > 5 && Disk > 6"),
        ("TARGET.Memory > RequestMemory", "Memory > 3000"),
        ('member("a", Tag)', 'MEMBER("a", TARGET.Tag)'),
        ('CE == "c"', 'CEName == "c"'),
        ("SiteAd.Load < 5", "sitead.LOAD < 5"),
        ("MY.Nothing is undefined", "undefined =?= undefined"),
    ],
)
def test_spellings_that_mean_the_same_are_one(one, other):
    assert read_expression(one, REQUEST).canonical == read_expression(other, REQUEST).canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Memory > 5", "Memory >= 5"),
        ('Site == "a"', 'Site == "A"'),
        ("Memory > 5 || Disk > 6", "Disk > 6 || Memory > 5"),
        ("JobType == 5", "TARGET.JobType == 5"),
        ("Memory > 5", "SiteAd.Memory > 5"),
    ],
)
def test_others_are_not(one, other):
    assert read_expression(one, REQUEST).canonical != read_expression(other, REQUEST).canonical


def test_what_is_stored_keeps_the_words_of_the_user_and_what_was_asked_of_the_job(table):
    (found,) = compiled(table, 'target.Memory>RequestMemory&&Owner=="ann"')
    assert (found.kind, found.operator, found.wanted) == (
        Kind.EXPRESSION, "", ('target.Memory > RequestMemory && Owner == "ann"',),
    )  # fmt: skip
    assert found.unit == '[Owner = "ann"; RequestMemory = 3000]'
    again = compile_requirements({"Constraint": [*found.wanted, found.unit]}, table.types)
    assert again == (found,)
    assert table.eligible_mask(again) == table.eligible_mask([found])


# --- what changes --------------------------------------------------------------------------------------------


def left(table, text):
    return {
        one.text: [queue.queue for queue in named(table, one.queues)]
        for one in table.placement(compiled(table, text))
    }


@pytest.mark.parametrize(
    ("text", "admits", "remains"),
    [
        ("CurMatches < MaxJobs", ["short", "long", "odd"], {"CurMatches < MaxJobs": ["short", "long", "odd"]}),
        ("Memory > 5000 && TARGET.CurrentPendingJobs < 5", ["long"],
         {"CurrentPendingJobs < 5": ["long"]}),
        ("Memory > 5000 || CurMatches < 5", ["short", "long", "odd"], {"CurMatches < 5 || false": ["short", "odd"]}),
        ("(CurMatches < 5 && Memory > 3000) || Memory < 3000", ["short", "long", "odd"],
         {"CurMatches < 5 && true || false": ["short", "long"], "CurMatches < 5 && false || true": ["odd"]}),
        ("CurMatches * Memory < RequestMemory * 2", ["short", "long", "odd"],
         {"CurMatches * 4000 < 6000": ["short"], "CurMatches * 8000 < 6000": ["long"],
          "CurMatches * 2000 < 6000": ["odd"]}),
        ('SiteAd.Memory > Memory && Queue == "odd"', ["odd"],
         {"SiteAd.memory > 2000": ["odd"]}),
        ("CurMatches < Disk", ["short", "long"], {"CurMatches < 2048": ["short"]}),
        ("time() > 5", ["short", "long", "odd"], {"time() > 5": ["short", "long", "odd"]}),
        ("Memory > 1", ["short", "long", "odd"], {}),
    ],
)  # fmt: skip
def test_what_only_the_ad_of_the_site_says_is_left_for_the_broker(table, text, admits, remains):
    assert (admitted(table, text), left(table, text)) == (admits, remains)


@pytest.mark.parametrize(
    ("text", "ad", "holds"),
    [
        ("CurMatches < MaxJobs", "[CurMatches = 3; MaxJobs = 4]", True),
        ("CurMatches < MaxJobs", "[CurMatches = 4; MaxJobs = 4]", False),
        ("CurMatches < MaxJobs", "[MaxJobs = 4]", False),
        ("CurMatches < MaxJobs", None, False),
        ("(CurMatches < MaxJobs) =!= false", None, True),
        ('SiteAd.Load < 5 || StationName == "fnal"', '[StationName = "FNAL"; Load = 4]', True),
        ("SiteAd.Room > 5", "[Room = 2 * Half; Half = 3]", True),
        ("SiteAd.Mine > 5", '[Mine = TARGET.Owner == "ann" ? 6 : 5]', True),
        ("time() - UpdateSequenceNumber < 900", "[UpdateSequenceNumber = 200]", True),
        ("time() - UpdateSequenceNumber < 900", "[UpdateSequenceNumber = 100]", False),
    ],
)  # fmt: skip
def test_the_broker_holds_what_is_left_against_the_ad_of_the_site(table, text, ad, holds):
    (one,) = table.placement(compiled(table, text))
    site = None if ad is None else parse_ad(ad)
    assert holds_at(one.left, site, request=REQUEST, now=1_050.0) is holds


# --- properties ----------------------------------------------------------------------------------------------

NAMES = ("Number", "Exact", "Text", "List", "Version", "Flag", "Free", "Site", "Queue", "VO", "CurMatches")
constants = st.sampled_from(["1", "2", "2.5", '"a"', '"A"', "true", "undefined", '"s0"', '{"a", "b"}'])
atoms = st.one_of(st.sampled_from(NAMES), constants, st.just("RequestMemory"), st.just("SiteAd.Load"))
operators = st.sampled_from(["<", ">=", "==", "!=", "=?=", "=!=", "+"])


def larger(parts):
    return st.one_of(
        st.builds("({} {} {})".format, parts, operators, parts),
        st.builds("({} && {})".format, parts, parts),
        st.builds("({} || {})".format, parts, parts),
        st.builds("!{}".format, parts),
        st.builds("member({}, {})".format, parts, parts),
        st.builds("({} ? {} : {})".format, parts, parts, parts),
    )


texts = st.recursive(atoms, larger, max_leaves=10)
several = st.lists(texts, min_size=1, max_size=3).map(" && ".join)
SMALL = ad_of({"RequestMemory": 2})


@given(worlds(), several, st.sampled_from(["vo", ""]))
def test_a_queue_is_admitted_exactly_if_nothing_speaks_against_it(config, text, vo):
    table = QueueTable(config, vo)
    criteria = compile_requirements({"Constraint": text, "Number": 1}, config.types, SMALL)
    mask, clauses = table.eligible_mask(criteria), tuple(by_clause(criteria))
    assert mask == table.eligible_mask(clauses)
    for bit in table.queues:
        reasons = table.reasons(bit, criteria)
        assert bool(mask >> bit & 1) == (not reasons)
        failed = [
            one.parameter
            for one, lost in zip(clauses, table.failing(clauses), strict=True)
            if lost >> bit & 1
        ]
        assert sorted(failed) == sorted(
            one.parameter for one in table.reasons(bit, clauses) if one.parameter != "VO"
        )


@given(several)
def test_the_canonical_text_is_canonical_and_its_parts_are_in_any_order(text):
    found = read_expression(text, SMALL)
    assert read_expression(found.canonical, ad_of({})).canonical == found.canonical
    assert read_expression(found.text, SMALL).canonical == found.canonical
    mirrored = " && ".join(f"({one.text})" for one in reversed(found.clauses))
    assert read_expression(mirrored, SMALL).canonical == found.canonical


@given(
    worlds(), texts, st.sampled_from(["[CurMatches = 1; Load = 2]", "[CurMatches = 2.5; Load = true]", "[]"])
)
def test_what_is_left_is_worth_what_the_whole_is(config, text, ad):
    """With the attributes of the site's ad written in, the same queues are admitted as by mask and broker together."""
    table, site = QueueTable(config, "vo"), parse_ad(ad)
    criteria = compile_requirements({"Constraint": text}, config.types, SMALL)
    mask = table.eligible_mask(criteria)
    for one in table.placement(criteria):
        if not holds_at(one.left, site, now=0.0):
            mask &= ~one.queues
    put_in = ad_of({"RequestMemory": 2})
    known = text
    for name, key in (("CurMatches", "curmatches"), ("SiteAd.Load", "load")):
        value = site.constants.get(key, "undefined")
        known = known.replace(name, str(value).lower())
    whole = compile_requirements({"Constraint": known}, config.types, put_in)
    assert mask == table.eligible_mask(whole)


records = st.sampled_from(
    [
        ("Number", ">=", [0, 1, 2, 2.5]),
        ("Exact", "==", [0, 1, 2, 2.5]),
        ("Text", "=?=", ["a", "A", "b", "1"]),
        ("List", "member", ["a", "A", "b", "1"]),
        ("Version", "versionGE", ["1", "1.2", "1.10", "2"]),
        ("Flag", "=?=", [True, False]),
    ]
)


@st.composite
def both_forms(draw):
    """The same wish as a record and as an expression."""
    wanted, clauses = {}, []
    for name, how, values in draw(st.lists(records, min_size=1, max_size=4, unique_by=lambda one: one[0])):
        value = draw(st.sampled_from(values))
        wanted[name] = value
        spelled = f'"{value}"' if isinstance(value, str) else str(value).lower()
        if how == "member":
            clauses.append(f"identicalMember({spelled}, {name})")
        elif how == "versionGE":
            clauses.append(f"versionGE({name}, {spelled})")
        else:
            clauses.append(f"{name} {how} {spelled}")
    return wanted, " && ".join(clauses)


@given(worlds(), both_forms())
def test_a_plain_expression_admits_what_the_record_does(config, forms):
    """Of queues that offer no list of what is not declared one: no expression compares lists."""
    record, text = forms
    table = QueueTable(config, "vo")
    alone = table.full
    for bit in table.queues:
        params = table.params(bit)
        values = [params[name.lower()].value for name in record if name != "List" and name.lower() in params]
        if any(isinstance(one, tuple) and "ANY" not in one for one in values):
            alone &= ~(1 << bit)
    by_record = table.eligible_mask(compile_requirements(record, TYPES))
    by_text = table.eligible_mask(compile_requirements({"Constraint": text}, TYPES, SMALL))
    assert by_record & alone == by_text & alone
