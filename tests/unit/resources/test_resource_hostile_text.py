"""Whatever a configuration says, it is a configuration or an error with a position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.resources.conftest import load_cfg, load_toml

from lodesman.base.errors import InvalidConfig, SyntaxFault
from lodesman.decide.resources import QueueTable, compile_requirements, load_resources

words = st.sampled_from(
    [
        "Memory",
        "MaxTotalJobs",
        "Tag",
        "VO",
        "P",
        "p",
        "S",
        "v",
        "CEs",
        "Queues",
        "VOs",
        "Sites",
        "",
        "a.b",
        "ANY",
    ]
)
texts = st.sampled_from(
    ["", "1", "-1", "4 GB", "a, b", ",", "ANY", "true", "1e999", "numbr", "list merge", "é\u2028"]
)


def cfg_section(inner):
    entries = st.lists(st.one_of(st.tuples(words, texts), st.tuples(words, inner)), max_size=4)
    return entries.map(lambda items: dict(items))


sections = st.recursive(cfg_section(texts), cfg_section, max_leaves=12)


def as_cfg(section):
    lines = []
    for name, value in section.items():
        if isinstance(value, dict):
            lines += [name or "x", "{", *as_cfg(value), "}"]
        else:
            lines.append(f"{name or 'x'} = {value}")
    return lines


def below(path, section):
    for name in reversed(path):
        section = {name: section}
    return "\n".join(as_cfg(section))


def usable_or_positioned(load, text):
    """Load, and use what was loaded; or see that every fault has a place."""
    try:
        config = load(text, source="f")
    except SyntaxFault as fault:
        return fault.data["line"] >= 1
    except InvalidConfig as fault:
        return all(item["source"] == "f" and item["message"] for item in fault.data["faults"])
    table = QueueTable(config, "v")
    table.failing(compile_requirements({"Memory": 1, "Tag": ["a"], "P": "1"}, table.types))
    return True


@given(
    st.sampled_from(
        [
            ("Resources", "Sites"),
            ("Resources", "Sites", "G", "S"),
            ("Resources", "Sites", "G", "S", "CEs", "c", "Queues", "q"),
            ("Operations", "JobDescription"),
            ("Registry", "Groups"),
            ("Registry",),
        ]
    ),
    sections,
)
def test_any_sections(path, section):
    assert usable_or_positioned(load_cfg, below(path, section))


toml_values = st.sampled_from(
    [
        "1",
        "-1",
        '"4 GB"',
        '"a, b"',
        "[]",
        '["a", 1]',
        "true",
        "inf",
        "1979-05-27",
        "[[1]]",
        "{ a = 1 }",
        '"ANY"',
        '""',
    ]
)
toml_words = st.sampled_from(
    [
        "site",
        "S",
        '"a.b"',
        "ce",
        "c",
        "queue",
        "q",
        "vo",
        "v",
        "group",
        "job_description",
        "Memory",
        "P",
        '""',
        "VO",
    ]
)


@st.composite
def toml_texts(draw):
    lines = []
    for path in draw(st.lists(st.lists(toml_words, min_size=1, max_size=7), max_size=5)):
        lines.append(f"[{'.'.join(path)}]")
        lines += [
            f"{key} = {value}"
            for key, value in draw(st.lists(st.tuples(toml_words, toml_values), max_size=3))
        ]
    return "\n".join(lines)


@given(toml_texts())
def test_any_tables(text):
    assert usable_or_positioned(load_toml, text)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a.toml", "B.TOML", "c.cfg", "d"]), st.one_of(toml_texts(), st.text())),
        max_size=3,
    )
)
def test_any_files(files):
    assert usable_or_positioned_files(files)


def usable_or_positioned_files(files):
    try:
        QueueTable(load_resources(files), "v")
    except InvalidConfig as fault:
        return {item["source"] for item in fault.data["faults"]} <= {name for name, _ in files}
    return True


def test_a_deep_configuration_does_not_break_the_reader():
    usable_or_positioned(load_cfg, "a\n{\n" * 10_000)
    usable_or_positioned(load_toml, f"[site.{'.'.join('x' * 500)}]")
    usable_or_positioned(load_toml, f"[site.S]\nP = {'[' * 5000}")


@pytest.mark.slow
def test_a_long_line_is_read_in_bounded_work():
    text = '[site.S]\nP = "' + "x" * 1_000_000 + '"\nQ = [' + "1, " * 100_000 + "]\n"
    config = load_toml(text)
    assert config.tree.sites["S"].params["Q"] == (1,)
    assert config.tree.sites["S"].sources["", "q"].line == 3
