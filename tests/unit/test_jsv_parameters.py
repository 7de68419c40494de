"""What scripts see of a submission: every row of the copied table, defaults, one line for each value."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.kits.jsv_kit import JOB, SERVER_JOB, table

from lodesman.base.errors import InvalidJob
from lodesman.server.jsv.parameters import (
    CLEARED,
    DEFAULTS,
    READ_ONLY,
    check_parameters,
    environment_lines,
    is_known,
    parameter_lines,
)

ROWS = table("jsv-parameters.md")
HEAD = [name for name, _ in ROWS][: [name for name, _ in ROWS].index("jc")]
REST = [(name, when) for name, when in ROWS if name not in HEAD]
# The text at which a row says that a parameter is sent, and one at which it is not.
WHEN = {
    "if given": ("x", ""),
    "if the job has a class": ("app.large", ""),
    "only y": ("y", "n"),
    "only n": ("n", "y"),
    "only u": ("u", "n"),
    "not n": ("e", "n"),
    "only non-0": ("-3", "0"),
    "only if not 1-1:1": ("2", "1"),
}


def sent(parameters, **more):
    return [tuple(line.split(" ", 2)[1:]) for line in parameter_lines(parameters, **more)]


def names(parameters):
    return [name for name, _ in sent(parameters)]


def test_all_parameters_in_the_order_of_the_real_client():
    values = {name: WHEN[when][0] for name, when in reversed(REST)}
    job = replace(SERVER_JOB, arguments=("x",), values=values)
    assert names(job) == [name for name, _ in ROWS]
    assert sent(job)[len(HEAD) :] == [(name, WHEN[when][0]) for name, when in REST]


@pytest.mark.parametrize(("name", "when"), REST)
def test_a_parameter_at_its_default_is_not_sent(name, when):
    given, default = WHEN[when]
    assert name in names(replace(JOB, values={name: given}))
    assert name not in names(replace(JOB, values={name: default}))
    assert is_known(name)


def test_the_table_is_whole():
    cores = {"binding_exp_socket0", "binding_exp_core0"}
    assert {name for name, _ in REST} - cores == set(DEFAULTS)
    assert {*HEAD} - READ_ONLY == {"CMDNAME", "CMDARGS", "CMDARG0"}


def test_the_head():
    assert sent(replace(JOB, values={})) == [
        ("VERSION", "1.0"), ("CONTEXT", "client"), ("CLIENT", "qsub"), ("USER", "ann"), ("GROUP", "users"),
        ("CMDNAME", "/home/ann/run.sh"), ("CMDARGS", "2"), ("CMDARG0", "*"), ("CMDARG1", "a  b"),
    ]  # fmt: skip
    assert sent(SERVER_JOB)[1] == ("CONTEXT", "server")
    assert ("JOB_ID", "7") in sent(SERVER_JOB)
    assert ("CMDNAME", "NONE") in sent(replace(JOB, command=""))


def test_tasks_are_sent_together():
    tasks = {"t_min": "1", "t_max": "5", "t_step": "1"}
    assert [pair for pair in sent(replace(JOB, values=tasks)) if pair[0][:2] == "t_"] == [*tasks.items()]
    assert not {"t_min", "t_max", "t_step"} & {*names(replace(JOB, values={**tasks, "t_max": "1"}))}


def test_later_switches_come_last_in_their_order():
    values = {"zz": "1", "w": "e", "aa": "2"}
    assert sent(replace(JOB, values=values))[-3:] == [("w", "e"), ("zz", "1"), ("aa", "2")]


def test_explicit_cores_follow_their_number():
    values = {
        "pe_name": "mpi", "binding_exp_core10": "4", "binding_exp_socket10": "3", "binding_exp_core2": "2",
        "binding_exp_socket2": "1", "binding_exp_n": "11",
    }  # fmt: skip
    assert names(replace(JOB, values=values))[-6:] == [
        "binding_exp_n", "binding_exp_socket2", "binding_exp_core2", "binding_exp_socket10", "binding_exp_core10",
        "pe_name",
    ]  # fmt: skip


def test_what_a_process_has_seen_is_sent_empty():
    job = replace(JOB, values={"a": "1", "w": "e"})
    lines = parameter_lines(job, forget=["later", "jc"])
    assert lines[-4:] == ["PARAM jc ", "PARAM a 1", "PARAM w e", "PARAM later "]
    assert parameter_lines(replace(job, values={"jc": "app"}), forget=["jc"])[-1] == "PARAM jc app"


@pytest.mark.parametrize(
    ("name", "cleared"), [("N", True), ("binding_exp_n", True), ("jc", False), ("later", False)]
)
def test_which_parameters_libraries_clear(name, cleared):
    assert (name in CLEARED) == cleared


@pytest.mark.parametrize("bad", ["a\nb", "\n", "nul\x00", "\ud800"])
def test_a_value_that_is_not_one_line_is_refused(bad):
    with pytest.raises(InvalidJob) as refused:
        check_parameters(replace(JOB, values={"ac": bad}))
    assert refused.value.data == {"attribute": "ac"}
    with pytest.raises(InvalidJob, match="CMDARG0 has"):
        check_parameters(replace(JOB, arguments=(bad,)))
    with pytest.raises(InvalidJob, match="CMDNAME has"):
        check_parameters(replace(JOB, command=f"é{bad}"))


def test_the_environment_is_sent_in_one_line_each():
    text = "a\\b\n\r\t\a\b\vé"
    assert environment_lines({"X": text, "Y": ""}) == ["ENV ADD X a\\b\\n\\r\\t\\a\\b\\vé", "ENV ADD Y "]


def test_names_that_no_variable_has_stay_away():
    assert environment_lines(
        {"BASH_FUNC_f%%": "() { :; }", "a b": "", "1": "", "x;reboot": "", "_1": "y"}
    ) == ["ENV ADD _1 y"]


@given(
    values=st.dictionaries(st.sampled_from([*DEFAULTS, "later"]), st.text(max_size=20)),
    arguments=st.lists(st.text(max_size=10), max_size=4).map(tuple),
)
def test_every_value_arrives_as_it_is_or_is_refused(values, arguments):
    job = replace(JOB, values=values, arguments=arguments)
    try:
        check_parameters(job)
    except InvalidJob:
        assert any(re.search(r"[\n\x00\ud800-\udfff]", text) for text in [*values.values(), *arguments])
        return
    lines = parameter_lines(job)
    assert all("\n" not in line for line in lines)
    found = dict(line.removeprefix("PARAM ").split(" ", 1) for line in lines)
    assert [found[f"CMDARG{number}"] for number in range(len(arguments))] == list(arguments)
    assert all(found[name] == text for name, text in values.items() if name in found)
    assert all(text in {"", "1", DEFAULTS.get(name)} for name, text in values.items() if name not in found)
