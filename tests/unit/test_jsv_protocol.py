"""The dialogue: each row of the copied tables, each refusal, restarts, and what is left of a submission."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.kits.jsv_kit import JOB, SERVER_JOB, table

from lodesman.base.errors import InvalidJob
from lodesman.server.jsv.chain import JsvLogLine, JsvVerdict, ParameterChange
from lodesman.server.jsv.parameters import NUMBERS, READ_ONLY, parameter_lines
from lodesman.server.jsv.protocol import Dialogue

SCRIPT = "/etc/jsv"


def begun(job=JOB, **more):
    """A dialogue whose script has its parameters."""
    dialogue = Dialogue(job, SCRIPT, **more)
    assert dialogue.start() == ["START"]
    assert dialogue.take_line("STARTED")[-1] == "BEGIN"
    return dialogue


def outcome(*lines, job=JOB, **more):
    """What becomes of a job after these lines."""
    dialogue = begun(job, **more)
    for line in lines:
        assert dialogue.take_line(line) == []
    return dialogue.outcome() if dialogue.has_ended() else None


def refused(line, job=JOB):
    found = outcome(line, job=job)
    assert (found.verdict, found.restart, found.parameters) == (JsvVerdict.REJECTED, True, job)
    return found.message


def changed(*lines, job=JOB):
    return outcome(*lines, "RESULT STATE ACCEPT", job=job).parameters


# --- one test for each row of the table of commands ---


def hears_started():
    dialogue = Dialogue(JOB, SCRIPT)
    assert dialogue.take_line("STARTED") == [*parameter_lines(JOB), "BEGIN"]
    assert dialogue.take_line("STARTED") == []
    assert dialogue.outcome().message == 'JSV sent "STARTED" twice for one job'


def hears_send():
    dialogue = Dialogue(JOB, SCRIPT)
    assert dialogue.take_line("SEND ENV") == []
    lines = dialogue.take_line("STARTED")
    assert lines[-3:] == ["ENV ADD FOO x y", "ENV ADD TEXT two\\nlines\\n", "BEGIN"]
    assert not any(line.startswith("ENV") for line in Dialogue(JOB, SCRIPT).take_line("STARTED"))
    for line, what in (("SEND PARAMS", "PARAMS"), ("SEND", ""), ("SEND env", "env")):
        assert refused(line) == f'got "{what}" as object for SEND command'


def hears_parameters():
    left = changed("PARAM N new", "PARAM l_hard", "PARAM P physics")
    assert left.values == {"N": "new", "M": "ann@host", "cwd": "/home/ann", "P": "physics"}
    # Blanks are put together, as the real parser does.
    assert changed("PARAM  A   two   words ").values["A"] == "two words"
    assert changed("PARAM").values == JOB.values


def hears_environment():
    left = changed("ENV ADD A x  y", "ENV MOD FOO new", "ENV DEL TEXT", "ENV DEL NONE")
    assert left.environment == {"FOO": "new", "A": "x y"}
    assert JOB.environment.keys() == {"FOO", "TEXT"}
    assert refused("ENV ADD A") == '"ENV ADD A <null>" is invalid'
    assert refused("ENV MOD A") == '"ENV MOD A <null>" is invalid'
    assert refused("ENV DEL A x") == '"ENV DEL A x" is invalid'
    assert refused("ENV ADD") == '"ENV ADD <null> <null>" is invalid'
    assert refused("ENV SET A x") == '"ENV SET A x" is invalid'


def hears_logs():
    found = outcome(
        "LOG INFO a  b", "LOG WARNING", "LOG ERROR {x}", "LOG DEBUG y", "LOG", "RESULT STATE ACCEPT"
    )
    assert found.accepted
    assert [(line.level, line.text) for line in found.log] == [
        ("INFO", "a b"), ("WARNING", ""), ("ERROR", "{x}"), ("WARNING", "DEBUG y"), ("WARNING", ""),
    ]  # fmt: skip


def hears_result():
    dialogue = begun()
    assert not dialogue.has_ended()
    dialogue.take_line("RESULT STATE REJECT  No way   Jose")
    assert dialogue.outcome().message == "No way Jose"
    assert dialogue.take_line("RESULT STATE ACCEPT") == []
    assert dialogue.outcome().verdict is JsvVerdict.REJECTED


def hears_anything_else():
    assert refused("HELLO world") == 'master got unknown command from JSV: "HELLO"'
    assert refused("started") == 'master got unknown command from JSV: "started"'
    assert refused("ERROR the disk  is full") == "the disk is full"
    assert refused("ERROR") == 'master got unknown command from JSV: "ERROR"'


COMMANDS = {
    "STARTED": hears_started,
    "SEND ENV": hears_send,
    "PARAM name value / PARAM name": hears_parameters,
    "ENV ADD/MOD name value, ENV DEL name": hears_environment,
    "LOG INFO/WARNING/ERROR text": hears_logs,
    "RESULT STATE x [msg]": hears_result,
    "anything else, INCLUDING `ERROR ...`": hears_anything_else,
}


@pytest.mark.parametrize("row", [row[0] for row in table("jsv-dialogue.md")])
def test_rows_of_the_dialogue(row):
    COMMANDS[row]()


def test_blank_lines_mean_nothing():
    assert outcome("", "   ") is None


# --- results: the rows that need no process ---


@pytest.mark.parametrize(
    ("line", "verdict", "message"),
    [
        ("RESULT STATE ACCEPT", JsvVerdict.ACCEPTED, ""),
        ("RESULT STATE ACCEPT fine", JsvVerdict.ACCEPTED, "fine"),
        ("RESULT STATE CORRECT", JsvVerdict.CORRECTED, ""),
        ("RESULT STATE REJECT", JsvVerdict.REJECTED, "JSV rejected job"),
        ("RESULT STATE REJECT no", JsvVerdict.REJECTED, "no"),
        ("RESULT STATE REJECT_WAIT", JsvVerdict.REJECTED_FOR_NOW, "JSV temporarily rejected job"),
        ("RESULT STATE REJECT_WAIT later", JsvVerdict.REJECTED_FOR_NOW, "later"),
    ],
)
def test_results(line, verdict, message):
    found = outcome("PARAM N new", line)
    assert (found.verdict, found.message, found.restart) == (verdict, message, False)
    assert found.accepted == (verdict in {"accepted", "corrected"})
    assert found.parameters.values["N"] == ("new" if found.accepted else "job")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("RESULT", 'JSV got unknown command ""'),
        ("RESULT ACCEPT", 'JSV got unknown command "ACCEPT"'),
        ("RESULT STATE", 'JSV got unknown command "STATE"'),
        ("RESULT STATE MAYBE x", 'JSV sent unknown result "MAYBE x"'),
        ("RESULT STATE accept", 'JSV sent unknown result "accept"'),
    ],
)
def test_results_that_are_none(line, message):
    assert refused(line) == message


def test_a_result_before_the_script_was_told_of_the_job_is_none():
    """It would accept jobs that it never saw."""
    dialogue = Dialogue(JOB, SCRIPT)
    assert dialogue.take_line("RESULT STATE ACCEPT") == []
    found = dialogue.outcome()
    assert (found.verdict, found.message) == (JsvVerdict.REJECTED, 'JSV sent "RESULT" before "STARTED"')


def test_strict_accept_keeps_changes_only_with_correct():
    for word, kept in (("ACCEPT", False), ("CORRECT", True)):
        found = outcome("PARAM N new", "ENV DEL FOO", f"RESULT STATE {word}", strict_accept=True)
        assert found.accepted
        assert bool(found.changes) == bool(found.environment) == kept
        assert (found.parameters == JOB) != kept


def test_changes_keep_their_order():
    found = outcome("PARAM P x", "ENV ADD B 1", "PARAM N y", "PARAM P", "ENV DEL FOO", "RESULT STATE CORRECT")
    assert [(change.name, change.value) for change in found.changes] == [("P", "x"), ("N", "y"), ("P", None)]
    assert found.environment == (
        ParameterChange(name="B", value="1"),
        ParameterChange(name="FOO", value=None),
    )
    assert found.parameters.values == {**JOB.values, "N": "y"}


def test_what_is_not_changed_is_not_copied():
    assert outcome("LOG INFO x", "RESULT STATE ACCEPT").parameters is JOB


# --- parameters ---


@pytest.mark.parametrize("name", sorted(READ_ONLY))
def test_read_only_parameters(name):
    assert refused(f"PARAM {name} x") == f'JSV tries to modify read-only parameter "{name}"'
    assert refused(f"PARAM {name}").startswith("JSV tries to modify read-only")


@pytest.mark.parametrize("name", ["b", "j", "notify", "shell", "R", "r"])
def test_booleans(name):
    assert refused(f"PARAM {name} maybe") == f'JSV tries to set "{name}" to "maybe"'
    assert refused(f"PARAM {name}") == f'JSV tries to delete boolean parameter "{name}"'
    assert changed(f"PARAM {name} y").values[name] == "y"
    assert changed(f"PARAM {name} n").values[name] == "n"


def test_the_name_may_not_be_emptied():
    assert refused("PARAM N") == 'JSV tries to delete "N"'


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers(name):
    assert refused(f"PARAM {name} many") == f'JSV tries to set "{name}" to "many"'
    assert changed(f"PARAM {name} 12").values[name] == "12"
    assert name not in changed(f"PARAM {name} 12", f"PARAM {name}").values


@pytest.mark.parametrize(
    ("lines", "arguments"),
    [
        (["CMDARGS 1"], ["*"]),
        (["CMDARGS 0"], []),
        (["CMDARGS 4"], ["*", "a  b", "", ""]),
        (["CMDARG1 x  y"], ["*", "x y"]),
        (["CMDARG0"], ["", "a  b"]),
        (["CMDARG3 z"], ["*", "a  b", "", "z"]),
        (["CMDARGS 3", "CMDARG2 z"], ["*", "a  b", "z"]),
        (["CMDARGS"], ["*", "a  b"]),
    ],
)
def test_arguments_grow_and_are_cut(lines, arguments):
    assert list(changed(*(f"PARAM {line}" for line in lines)).arguments) == arguments


@pytest.mark.parametrize(
    "line",
    [
        "CMDARGS x", "CMDARGS -1", "CMDARGS 1000000", "CMDARGS ²", "CMDARG999999 x", "CMDARGS 000000000000900000",
        "CMDARGS 000000000000100001", "CMDARGS ٣", "CMDARGS 1_0", "CMDARGS +1", "CMDARGS inf",
    ],
)  # fmt: skip
def test_arguments_have_bounds(line):
    name, value = line.split()
    assert refused(f"PARAM {line}") == f'JSV tries to set "{name}" to "{value}"'


def test_no_number_is_too_long_to_be_refused():
    """Python reads no whole number of more than 4,300 digits."""
    digits = "0" * 12 + "9" * 5_000
    assert refused(f"PARAM CMDARGS {digits}") == f'JSV tries to set "CMDARGS" to "{digits[:200]}"'
    assert len(changed(f"PARAM CMDARGS {'0' * 5_000}3").arguments) == 3
    assert refused(f"PARAM p {digits}") == f'JSV tries to set "p" to "{digits[:200]}"'


def test_digits_of_other_scripts_make_no_numbers_and_no_names():
    assert refused("PARAM p ٣") == 'JSV tries to set "p" to "٣"'
    found = outcome("PARAM CMDARG٣ x", "PARAM binding_exp_core٣ 1", "RESULT STATE CORRECT")
    assert found.parameters is JOB
    assert [note.split('"')[1] for note in found.notes] == ["CMDARG٣", "binding_exp_core٣"]


def test_what_cannot_be_set_is_ignored_and_noted_once():
    found = outcome(
        "PARAM CMDNAME /bin/sh", "PARAM odd x", "PARAM odd y", "PARAM CMDARGX 1", "RESULT STATE CORRECT"
    )
    assert found.parameters is JOB
    assert found.changes == ()
    assert [note.split('"')[1] for note in found.notes] == ["CMDNAME", "odd", "CMDARGX"]


def test_the_job_class_may_be_changed_and_removed():
    job = replace(SERVER_JOB, values={"jc": "app"})
    assert changed("PARAM jc app.large", job=job).job_class == "app.large"
    assert changed("PARAM jc", job=job).job_class == ""
    assert changed("PARAM jc other").job_class == "other"


def test_a_process_that_saw_a_class_is_sent_an_empty_one():
    first = begun(replace(JOB, values={"jc": "app", "later": "1"}))
    assert first.seen == {"jc", "later"}
    second = Dialogue(JOB, SCRIPT, seen=first.seen)
    lines = second.take_line("STARTED")
    assert [line for line in lines if line.endswith(" ")] == ["PARAM jc ", "PARAM later "]
    assert second.seen == {"jc", "later"}


def test_a_class_that_the_script_itself_set_is_forgotten_as_well():
    dialogue = begun()
    dialogue.take_line("PARAM jc app")
    assert dialogue.seen == {"jc"}


def test_a_text_that_is_not_utf8_is_no_value():
    assert refused("PARAM P caf\udce9") == 'JSV tries to set "P" to a value that is no text in UTF-8'
    assert refused("PARAM P a\x00b").endswith("no text in UTF-8")
    assert refused("ENV ADD caf\udce9 x").startswith('JSV tries to set "caf?"')
    found = outcome("LOG INFO caf\udce9", "RESULT STATE REJECT caf\udce9")
    assert (found.log, found.message) == ((JsvLogLine(level="INFO", text="caf?"),), "caf?")


# --- silence, stderr, size ---


def test_a_silent_script_is_started_once_more_and_then_rejects():
    dialogue = begun(seen={"jc"})
    dialogue.take_line("PARAM N new")
    assert dialogue.take_silence()
    assert not dialogue.has_ended()
    assert dialogue.start() == ["START"]
    # A new process has seen no class, and the job is as it was given.
    assert dialogue.take_line("STARTED") == [*parameter_lines(JOB), "BEGIN"]
    assert not dialogue.take_silence()
    found = dialogue.outcome()
    assert found.message == 'got no response from JSV script "/etc/jsv"'
    assert (found.verdict, found.restart) == (JsvVerdict.REJECTED, True)


def test_after_a_restart_only_what_the_new_process_says_counts():
    dialogue = begun()
    dialogue.take_line("PARAM N old")
    dialogue.take_line("ENV DEL FOO")
    dialogue.take_silence()
    dialogue.take_line("STARTED")
    dialogue.take_line("PARAM P x")
    dialogue.take_line("RESULT STATE CORRECT")
    assert dialogue.outcome().parameters == replace(JOB, values={**JOB.values, "P": "x"})


def test_stderr_rejects_whatever_else_was_said():
    dialogue = begun()
    dialogue.take_line("RESULT STATE ACCEPT")
    dialogue.take_complaints(["first", "caf\udce9"])
    found = dialogue.outcome()
    assert (found.message, found.restart) == ("JSV stderr: first\nJSV stderr: caf?", True)
    dialogue.take_complaints(["x" * 100_000])
    assert len(dialogue.outcome().message) <= 4_096


@pytest.mark.slow
def test_a_script_that_talks_for_ever_is_stopped():
    dialogue = begun()
    for _ in range(100_001):
        dialogue.take_line("LOG INFO x")
    assert dialogue.outcome().message == "JSV sent more than 100000 lines or 64 MB"
    dialogue = begun()
    for _ in range(65):
        dialogue.take_line("LOG INFO " + "x" * (1 << 20))
    assert dialogue.outcome().verdict is JsvVerdict.REJECTED


def test_a_value_of_a_megabyte_passes_both_ways():
    big = "x" * 1_000_000
    dialogue = Dialogue(replace(JOB, values={"ac": big}), SCRIPT)
    assert f"PARAM ac {big}" in dialogue.take_line("STARTED")
    assert changed(f"PARAM ac {big}y").values["ac"] == big + "y"


def test_a_newline_in_a_value_is_refused_before_the_script_hears_anything():
    with pytest.raises(InvalidJob, match="The value of ac has a newline"):
        Dialogue(replace(JOB, values={"ac": "a\nb"}), SCRIPT)


def test_an_environment_that_cannot_be_sent_rejects():
    dialogue = Dialogue(replace(JOB, environment={"X": "\ud800"}), SCRIPT)
    dialogue.take_line("SEND ENV")
    assert dialogue.take_line("STARTED") == []
    assert dialogue.outcome().message.startswith("The value of X has the character U+D800")


@given(st.lists(st.tuples(st.sampled_from(["N", "P", "ac", "jc"]), st.text("ab,= ", max_size=6)), max_size=8))
def test_the_last_word_on_a_parameter_counts(said):
    found = outcome(*(f"PARAM {name} {text}" for name, text in said), "RESULT STATE CORRECT")
    model = dict(JOB.values)
    for name, text in said:
        value = " ".join(text.split())
        if value:
            model[name] = value
        elif name == "N":
            assert found.restart
            return
        else:
            model.pop(name, None)
    assert found.parameters.values == model


@pytest.mark.parametrize(
    ("logged", "unknown", "kept", "more"),
    [
        (100, 0, (100, 0), ""),
        (101, 0, (100, 0), "1 line"),
        (5_000, 0, (100, 0), "4,900 lines"),
        (3, 300, (3, 100), "200 lines"),
        (101, 102, (100, 100), "3 lines"),
    ],
)
def test_a_script_that_says_much_is_cut_short_and_the_rest_is_counted(logged, unknown, kept, more):
    lines = [f"LOG INFO {number}" for number in range(logged)]
    lines += [f"PARAM x{number} y" for number in range(unknown)] * 2
    found = outcome(*lines, "RESULT STATE ACCEPT")
    assert [line.text for line in found.log] == [str(number) for number in range(kept[0])]
    assert found.notes[kept[1] :] == ((f"JSV says more, which is left out: {more}.",) if more else ())
    assert (len(found.notes) - bool(more), found.accepted) == (kept[1], True)


def test_a_line_for_the_log_has_an_end():
    assert len(outcome(f"LOG {'a' * 10_000}", "RESULT STATE ACCEPT").log[0].text) == 4_096
