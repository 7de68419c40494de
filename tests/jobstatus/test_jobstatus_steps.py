from __future__ import annotations

import json

import pytest

from lodesman.site.jobstatus.steps import InvalidSteps, follow, read_script

SCRIPT = {
    "allocated": 8,
    "priority": 2,
    "slot_ends": 9_000,
    "steps": [
        {
            "at": 1_000,
            "do": "start",
            "payload": "a",
            "cores": 4,
            "expected_end": 4_600,
            "enforced_end": 8_200,
        },
        {"at": 1_000, "do": "start", "payload": "b", "cores": 2, "expected_end": 2_000},
        {"at": 1_100, "do": "commit", "payload": "a"},
        {"at": 1_150, "do": "end", "payload": "b", "pending": True},
        {"at": 1_160, "do": "drain", "cause": "node", "slot_ends": 6_000},
        {"at": 1_170, "do": "start", "payload": "c", "cores": 1, "expected_end": 4_601},
        {"at": 1_170, "do": "start", "payload": "d", "cores": 1, "expected_end": 1_500},
        {"at": 1_180, "do": "safe", "payload": "b"},
        {"at": 1_200, "do": "resume", "cause": "node", "slot_ends": None},
        {"at": 1_300, "do": "start", "payload": "e", "cores": 1, "expected_end": 1_400},
        {"at": 1_310, "do": "end", "payload": "e"},
        {"at": 1_320, "do": "end", "payload": "d"},
        {"at": 1_800, "do": "estimate", "payload": "a", "expected_end": 5_600},
        {"at": 1_900, "do": "leave"},
    ],
}


class Always:
    def publish(self, status) -> bool:
        return True


def play(script):
    return [json.loads(one.line()) for one in follow(*read_script(json.dumps(script)), Always())]


def test_a_script_is_followed():
    lines = play(SCRIPT)
    events = [(line["at"], line["why"]) for line in lines]
    assert events == [
        (1_000, "first"), (1_100, "changed"), (1_150, "changed"), (1_160, "drain"), (1_170, "promise"),
        (1_170, "changed"), (1_180, "changed"), (1_200, "reverted"), (1_300, "hold"), (1_440, "heart-beat"),
        (1_680, "heart-beat"), (1_800, "hold-over"), (1_900, "leaving"),
    ]  # fmt: skip
    assert [line["refused"] for line in lines if "refused" in line] == ["c", "e"]
    pending, drained = lines[2]["keys"], lines[3]["keys"]
    assert (pending["add_uncom_time"], pending["used_CPU"], pending["priority_factor"]) == (2 * 150, 4, 2)
    assert (drained["last_max_job_end"], drained["can_postpone_last_job"]) == (6_000, False)
    assert lines[-1]["keys"]["used_CPU"] == 0


def test_events_of_five_seconds_are_one_publication():
    steps = [{"at": 1_000, "do": "wait"}]
    steps += [{"at": 1_000 + n, "do": "priority", "value": n} for n in range(1, 5)]
    lines = play({"allocated": 1, "steps": [*steps, {"at": 1_009, "do": "wait"}]})
    assert [(line["at"], line["keys"]["priority_factor"]) for line in lines] == [(1_000, 0), (1_005, 4)]


def broken(**changes):
    return {**SCRIPT, **changes}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([], "the script is not an object"),
        (broken(steps=[]), "the script is not an object"),
        (broken(allocated=True), 'the script: "allocated"'),
        (broken(steps=[{"at": 1, "do": "jump"}]), 'step 1: "do" is none of start'),
        (broken(steps=[7]), 'step 1: "do" is none of start'),
        (broken(steps=[{"do": "wait"}]), 'step 1: "at" is missing'),
        (broken(steps=[{"at": 1, "do": "end"}]), 'step 1: "payload" is missing'),
        (
            broken(steps=[{"at": 1, "do": "drain", "slot_ends": "soon"}]),
            'step 1: "slot_ends" is missing or of',
        ),
        (
            broken(steps=[{"at": 1, "do": "start", "payload": "a", "cores": 0, "expected_end": 2}]),
            "less than 1",
        ),
        (broken(steps=[{"at": 2, "do": "wait"}, {"at": 1, "do": "wait"}]), "order of time"),
        (broken(steps=[{"at": 0, "do": "wait"}, {"at": 1e300, "do": "wait"}]), "30 days"),
    ],
)
def test_what_cannot_be_followed_is_refused(script, message):
    with pytest.raises(InvalidSteps, match=message):
        read_script(json.dumps(script))


def test_no_json_is_refused():
    with pytest.raises(InvalidSteps, match="not JSON"):
        read_script("{")
    with pytest.raises(InvalidSteps, match="given twice"):
        read_script('{"allocated": 1, "allocated": 2, "steps": [{"at": 1, "do": "wait"}]}')
    with pytest.raises(InvalidSteps, match='"at" is missing'):
        read_script('{"allocated": 1, "steps": [{"at": Infinity, "do": "wait"}]}')


@pytest.mark.parametrize("words", ["end", "commit", "safe"])
def test_a_payload_that_does_not_run_is_a_fault_of_the_script(words):
    steps = [{"at": 1, "do": words, "payload": "x"}]
    with pytest.raises(InvalidSteps, match='at 1: payload "x" does not run'):
        play(broken(steps=steps))


def test_a_payload_runs_once_at_a_time():
    twice = [SCRIPT["steps"][0]] * 2
    with pytest.raises(InvalidSteps, match='payload "a" runs already'):
        play(broken(steps=twice))
