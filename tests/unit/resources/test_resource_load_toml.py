"""Resources and groups from TOML, and the lines of a TOML text."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.resources.conftest import load_toml

from lodesman.base.errors import InvalidConfig, SyntaxFault
from lodesman.decide.resources import GroupConfig, QueueId, effective_params
from lodesman.decide.resources.load_toml import line_of, lines_of, parse_toml
from lodesman.wire.vocabulary import Level

DATA = Path(__file__).parents[2] / "data" / "resources"


def params(config, *queue, vo=""):
    return effective_params(config.tree, QueueId(*queue), vo=vo, types=config.types)


def faults_of(text):
    with pytest.raises(InvalidConfig) as caught:
        load_toml(text, source="x.toml")
    return caught.value.data["faults"]


def test_sites_ces_queues_and_overlays():
    config = load_toml(
        """
        [site.S]
        P = 1
        [site.S.vo.v]
        P = 2
        [site.S.ce.c]
        Q = [1, "a", true, 2.5]
        [site.S.ce.c.vo.v]
        R = "ce for v"
        [site.S.ce.c.queue.q.vo.v]
        T = "queue for v"
        """
    )
    found = params(config, "S", "c", "q", vo="v")
    assert {name: found[name].value for name in "pqrt"} == {
        "p": 2,
        "q": (1, "a", True, 2.5),
        "r": "ce for v",
        "t": "queue for v",
    }
    assert [found[name].level for name in "pqrt"] == [
        Level.SITE_VO,
        Level.CE,
        Level.CE_VO,
        Level.QUEUE_VO,
    ]
    assert config.vos == ("v",)


def test_the_access_list_and_the_overlays_differ_in_what_they_are():
    config = load_toml('[site.S]\nVO = ["v"]\n[site.S.vo.v]\nP = 1\n[site.S.ce.c.queue.q]\nvo = "w"')
    assert params(config, "S", "c", "q", vo="v")["vo"].value == ("w",)
    assert params(config, "S", "c", "q", vo="v")["p"].value == 1


def test_undeclared_values_keep_their_type():
    config = load_toml('[site.S.ce.c.queue.q]\nA = 4000\nB = "4000"\nC = "a, b"\nD = 1.5\nE = false\nF = []')
    found = params(config, "S", "c", "q")
    assert [found[name].value for name in "abcdef"] == [4000, "4000", "a, b", 1.5, False, ()]
    assert [type(found[name].value) for name in "abde"] == [int, str, float, bool]


def test_groups_and_vos():
    config = load_toml(
        '[group.a]\nvo = "v"\nshare = 2.5\njob_sharing = true\nbackground = "no"\n[group.b]\n[vo.w]\n'
    )
    assert dict(config.groups) == {
        "a": GroupConfig(name="a", vo="v", share=2.5, job_sharing=True),
        "b": GroupConfig(name="b"),
    }
    assert config.vos == ("w", "v")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("share = -1", "a share is not negative"),
        ('share = "much"', "is not a number"),
        ("share = true", "True is not a number"),
        ("vo = 7", "a text is expected"),
        ('job_sharing = "perhaps"', "neither true nor false"),
        ("shares = 7", "a group has background, job_sharing, share, vo"),
        ("vo = 'a'\nVO = 'b'", "VO is given twice"),
    ],
)
def test_faults_of_groups(line, message):
    (fault,) = faults_of(f"[group.g]\n{line}")
    assert message in fault["message"]
    assert fault["section"] == "group.g"
    assert fault["line"] == 1 + len(line.splitlines())


@pytest.mark.parametrize(
    ("text", "section", "line", "message"),
    [
        ("site = 3", "site", 1, "site is a table of tables"),
        ("\nsite.S = 3", "site", 2, "S is a value; a table [site.NAME] is expected"),
        ("[site.S]\nce = 'x'", "site.S.ce", 2, "ce is a table of tables"),
        ("[site.S.ce]\nc = 1", "site.S.ce", 2, "c is a value"),
        ("[site.S.ce.c]\nqueue = 1", "site.S.ce.c.queue", 2, "queue is a table of tables"),
        ("[site.S.vo]\nv = 1", "site.S.vo", 2, "v is a value; a table [site.S.vo.NAME]"),
        ("[site.S.queue.q]", "site.S", 1, "table 'queue' has no meaning here"),
        ("[site.LCG.CERN.ch]", "site.LCG", 1, "a name with dots needs quotes"),
        ("[site.S.ce.c.queue.q.ce.d]", "site.S.ce.c.queue.q", 1, "table 'ce' has no meaning here"),
        ("[site.S.ce.c.vo.v.queue.q]", "site.S.ce.c.vo.v", 1, "table 'queue' has no meaning here"),
        ("[site.'']\n", 'site.""', 1, "a name is empty"),
        ("job_description = 1", "job_description", 1, "job_description is a table"),
        ("[job_description]\nP = 'numbr'", "job_description.P", 2, "type 'numbr' is none of"),
        ("[job_description]\nP = 'list'\np = 'string'", "job_description.p", 3, "p is given twice"),
        ("[job_description.Memory]\ntype = 'list'", "job_description.Memory", 1, "needs a number"),
        ("[job_description]\nCPUTime = 'number MB'", "job_description.CPUTime", 2, "unit 'mb' does not fit"),
        ("[sites.S]", "sites", 1, "the table is called 'site'"),
        ("[Groups.g]", "Groups", 1, "the table is called 'group'"),
        ("[site.S]\nP = 2024-01-01", "site.S", 2, "expected a text, a number"),
        ("[site.S]\nP = [[1]]", "site.S", 2, "expected a text, a number"),
        ("[site.S]\nP = nan", "site.S", 2, "not a finite number"),
        ("[site.S]\nMemory = [1, 2]", "site.S", 2, "one value is expected, not a list"),
        ("[site.S]\nBackend = ['a', 'b']", "site.S", 2, "one value is expected, not a list"),
        ("[site.S]\nNumberOfProcessors = -1", "site.S", 2, "at least 0"),
        ("[site.S.vo.v]\nMaxTotalJobs = 2.5", "site.S.vo.v", 2, "a whole number"),
    ],
)
def test_faults_have_a_section_and_a_line(text, section, line, message):
    (fault,) = faults_of(text)
    assert message in fault["message"]
    assert (fault["source"], fault["section"], fault["line"]) == ("x.toml", section, line)


def test_all_faults_of_a_file():
    text = (DATA / "faulty.toml").read_text(encoding="utf-8")
    lines = text.splitlines()
    faults = faults_of(text)
    assert len(faults) == 16
    assert all(0 < fault["line"] <= len(lines) for fault in faults)
    assert [fault["line"] for fault in faults] == sorted(fault["line"] for fault in faults)
    by_line = {lines[fault["line"] - 1].split()[0] for fault in faults}
    assert {"MaxRAM", "Started", "Depth", "MaxWaitingJobs", "Infinite", "colour", "[sites.X]"} <= by_line


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("x = [", 1, 6), ("a = 1\nb = = 2", 2, 5), ("[a]\n[a]", 2, 3), ("a = 'x", 1, 7)],
)
def test_a_text_that_is_no_toml(text, line, column):
    with pytest.raises(SyntaxFault) as caught:
        parse_toml(text, source="x.toml")
    assert caught.value.data["line"] == line
    assert "(at" not in caught.value.message
    assert caught.value.data["column"] == column


def test_absurd_nesting_is_a_fault():
    with pytest.raises(SyntaxFault, match="nested too deep"):
        parse_toml("a = " + "[" * 100_000)


def test_other_tables_belong_to_others():
    config = load_toml("[server]\nport = 7777\n[director]\npilotsPerIteration = 40\n")
    assert list(config.tree.queue_ids()) == []
    assert config.notices == ()


# --- lines -----------------------------------------------------------------------------------------

TRICKY = '''# a comment with [brackets] and = signs
top = 1
[a]   # = not a key
x = "a # no comment" # = a comment
"quoted.key" = 1
'lit = eral' = 2
list = [
  1, # = no key
  2, "]", # [b]
]
after = 3
text = """
[not.a.table]
no = "key"
"""
literal = \'\'\'
[neither]
nor = 1
\'\'\'
inline = { inner = 1, deep = { er = [1] } }
dotted.key.path = 4
date = 1979-05-27T07:32:00Z
[a."b.c" . d]
y = "escaped \\" quote [ = "
[[array.of]]
z = 1
[a.'e]f']
last = 5
'''


def test_lines_of_a_tricky_text():
    tomllib.loads(TRICKY)
    found = lines_of(TRICKY)
    rows = TRICKY.splitlines()

    def row(start):
        return next(number for number, text in enumerate(rows, 1) if text.startswith(start))

    assert found == {
        ("top",): row("top"),
        ("a",): row("[a] "),
        ("a", "x"): row("x"),
        ("a", "quoted.key"): row('"quoted'),
        ("a", "lit = eral"): row("'lit"),
        ("a", "list"): row("list"),
        ("a", "after"): row("after"),
        ("a", "text"): row("text"),
        ("a", "literal"): row("literal"),
        ("a", "inline"): row("inline"),
        ("a", "dotted"): row("dotted"),
        ("a", "dotted", "key"): row("dotted"),
        ("a", "dotted", "key", "path"): row("dotted"),
        ("a", "date"): row("date"),
        ("a", "b.c"): row('[a."b.c"'),
        ("a", "b.c", "d"): row('[a."b.c"'),
        ("a", "b.c", "d", "y"): row("y"),
        ("array",): row("[[array"),
        ("array", "of"): row("[[array"),
        ("array", "of", "z"): row("z"),
        ("a", "e]f"): row("[a.'e]f'"),
        ("a", "e]f", "last"): row("last"),
    }


def test_the_line_of_what_stands_inside_a_line():
    found = lines_of("[a]\ninline = { inner = 1 }\n")
    assert line_of(found, ("a", "inline", "inner")) == 2
    assert line_of(found, ("a", "other")) == 1
    assert line_of(found, ("b",)) == 0
    assert line_of(found, ()) == 0


def test_windows_line_ends():
    assert lines_of("a = 1\r\nb = '''\r\n\r\n'''\r\nc = 2\r\n") == {("a",): 1, ("b",): 2, ("c",): 5}


keys = st.text("abc", min_size=1, max_size=3)
toml_values = st.sampled_from(["1", '"x = [#"', "[1,\n 2]", '"""\n[t]\n"""', "'''\nk = 1\n'''", "{ k = 1 }"])


@given(st.dictionaries(keys, st.dictionaries(keys, toml_values, max_size=4), max_size=4))
def test_every_table_and_key_has_the_line_it_was_written_on(tables):
    lines, expected = [], {}
    for table, entries in tables.items():
        expected[table,] = len(lines) + 1
        lines.append(f"[{table}] # comment = [")
        for key, value in entries.items():
            expected[table, key] = len(lines) + 1
            lines.extend(f"{key} = {value}".split("\n"))
    text = "\n".join(lines)
    tomllib.loads(text)
    assert lines_of(text) == expected
