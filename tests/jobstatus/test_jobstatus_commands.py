"""`show`, `check`, `write` and `package`: what they print, their exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from lodesman.site.jobstatus import channel, commands, waste
from lodesman.site.jobstatus.__main__ import main
from lodesman.site.jobstatus.channel import REASONS, Publication
from lodesman.site.jobstatus.commands import VERDICTS, WORDS, in_words
from lodesman.site.jobstatus.values import KEYS, Status

NOW = 1_391_212_345
SOURCES = Path(commands.__file__).parents[3]
STATUS = Status(6, NOW - 9_000, NOW + 3_000, NOW + 7_265, NOW + 90_000, 100, 700, False, 3)


@pytest.fixture
def directory(tmp_path):
    publication = Publication(tmp_path)
    assert publication.publish(STATUS)
    publication.close()
    set_age(tmp_path, 34)
    return tmp_path


def set_age(directory, seconds, keys=KEYS):
    for key in keys:
        if (directory / key).exists():
            os.utime(directory / key, (NOW - seconds, NOW - seconds))


def run(capsys, *words):
    """Exit code and what was printed."""
    code = main([str(word) for word in words])
    return code, capsys.readouterr().out


def asked(capsys, directory, *words):
    code, out = run(capsys, "show", directory, "--now", NOW, "--json", *words)
    return code, json.loads(out)


TABLE = """\
DIR: good, written 34 s ago
  used_CPU                                6  cores that payloads use
  last_job_start                 1391203345  last start or commit: 2014-01-31 21:22:25 UTC, 2 h 30 min ago
  first_exp_job_end              1391215345  first expected end: 2014-02-01 00:42:25 UTC, in 50 min 0 s
  last_exp_job_end               1391219610  last expected end: 2014-02-01 01:53:30 UTC, in 2 h 1 min
  last_max_job_end               1391302345  last enforced end: 2014-02-02 00:52:25 UTC, in 1 d 1 h
  add_uncom_time                        100  core-seconds that are not committed, beside those since the last start
  add_final_exp_waste                   700  core-seconds that a drain would leave idle after the first end
  can_postpone_last_job               False  whether more payloads may start
  priority_factor                         3  higher: keep it, among jobs of this user
  remaining                       2 h 1 min  at most: 1 d 1 h
  draining waste            1.86 core-hours  6,700 core-seconds
  kill waste               15.03 core-hours  54,100 core-seconds
"""


def test_show_is_a_table_for_people(directory, capsys):
    code, out = run(capsys, "show", directory, "--now", NOW, "--allocated", 8)
    assert (code, out.replace(str(directory), "DIR")) == (0, TABLE)


def test_show_says_what_is_not_known_and_what_is_doubtful(tmp_path, capsys):
    publication = Publication(tmp_path)
    publication.publish(Status(used_cpu=6, last_exp_job_end=NOW - 5, add_final_exp_waste=10**17))
    publication.close()
    set_age(tmp_path, 700)
    code, out = run(capsys, "show", tmp_path, "--now", NOW)
    assert code == 4
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "first_exp_job_end - first expected end: not published" in lines
    assert "remaining 0 s at most: unknown" in lines
    assert "kill waste unknown" in lines
    assert lines[-2:] == ["an expected end has passed", "it is older than 10 minutes"]


def test_times_beyond_all_calendars(tmp_path, capsys):
    publication = Publication(tmp_path)
    publication.publish(Status(used_cpu=1, last_job_start=0, last_max_job_end=10**17))
    publication.close()
    assert "100000000000000000  last enforced end\n" in run(capsys, "show", tmp_path)[1]


def test_json_has_the_keys_and_the_answers(directory, capsys):
    code, found = asked(
        capsys, directory, "--allocated", 8, "--jobstart", NOW - 10_000, "--batch-end", NOW + 80_000_000
    )
    assert code == 0
    assert found == {
        "directory": str(directory), "verdict": "good", "error": None,
        "keys": dict(STATUS.items()), "as_of": NOW - 34, "age_s": 34,
        "remaining_expected": 7265, "remaining_max": 90_000, "draining_waste": 6700, "kill_waste": 54_100,
        "flags": [],
    }  # fmt: skip


def test_what_is_not_known_is_null_and_never_0(tmp_path, capsys):
    publication = Publication(tmp_path)
    publication.publish(Status(used_cpu=6))
    publication.close()
    set_age(tmp_path, 0)
    code, found = asked(capsys, tmp_path)
    answers = ("remaining_expected", "remaining_max", "draining_waste", "kill_waste")
    assert (code, [found[name] for name in answers]) == (0, [None] * 4)
    assert found["keys"] == dict.fromkeys(KEYS) | {
        "used_CPU": 6, "can_postpone_last_job": True, "priority_factor": 0,
    }  # fmt: skip


def test_a_directory_without_values_has_none(directory, capsys):
    (directory / "used_CPU").unlink()
    code, found = asked(capsys, directory)
    assert (code, found["error"], found["verdict"]) == (3, "no-status:used_CPU", "invalid")
    assert set(found["keys"].values()) == {None}
    assert [found[name] for name in ("as_of", "age_s", "kill_waste")] == [None] * 3


def spoil(key, text):
    def change(directory):
        age = directory.joinpath(key).stat().st_mtime
        directory.joinpath(key).write_text(text)
        os.utime(directory / key, (age, age))

    return change


@pytest.mark.parametrize(
    ("change", "words", "code", "said"),
    [
        (lambda _: None, [], 0, []),
        (spoil("used_CPU", " 6\n\n"), [], 0, []),
        (spoil("used_CPU", "9"), ["--allocated", "8"], 1, ["more cores are used than allocated"]),
        (spoil("used_CPU", "9"), ["--allocated", "8", "--strict"], 3, ["more cores are used than allocated"]),
        (spoil("add_uncom_time", "7.5"), [], 1, ["add_uncom_time has a decimal point"]),
        (spoil("add_uncom_time", "7.5"), ["--strict"], 3, ["add_uncom_time has a decimal point"]),
        (spoil("priority_factor", "high"), [], 3, ["priority_factor is not a whole number of at most 18 digits"]),
        (spoil("last_max_job_end", "5"), [], 1, ["the ends are out of order"]),
        (lambda at: set_age(at, 601), [], 4, ["it is older than 10 minutes"]),
        (lambda at: set_age(at, 3601), [], 4, ["it is older than an hour: as if nothing was published"]),
        (lambda at: set_age(at, 20, ["last_job_start"]), [], 1,
            ["used_CPU is older than the other files: the writer died while it wrote"]),
        (lambda at: set_age(at, 44, ["used_CPU"]), [], 0, []),
        (lambda at: set_age(at, -61), [], 1,
            ["it was written in the future: clocks differ, or the user set the time of the file"]),
        (lambda at: set_age(at, -60), [], 0, []),
        (lambda at: (at / "used_CPU").unlink(), [], 3, ["used_CPU is missing: the job publishes nothing"]),
        (lambda at: at.chmod(0o777), [], 3, ["others than the user can write to the directory"]),
        (lambda _: None, ["--jobstart", str(NOW - 10)], 1, ["the job claims to lose more by a kill than it was given"]),
    ],
)  # fmt: skip
def test_check_has_a_verdict_its_reasons_and_an_exit_code(directory, capsys, change, words, code, said):
    change(directory)
    got, out = run(capsys, "check", directory, "--now", NOW, *words)
    lines = out.splitlines()
    assert (got, lines[0]) == (code, f"{directory}: {VERDICTS[code]}")
    assert [line.strip() for line in lines[1:]] == said


def test_a_locked_directory(directory, capsys, monkeypatch):
    monkeypatch.setattr(commands, "take_snapshots", partial(commands.take_snapshots, limit_s=0.5))
    with (directory / "used_CPU").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, out = run(capsys, "check", directory)
    assert code == 5
    assert (
        out.splitlines()[1]
        == "  used_CPU is locked by a process that does not let go: the job is suspended or stuck"
    )


def test_several_directories_have_the_highest_exit_code(directory, capsys):
    code, out = run(capsys, "show", directory, directory / "none", "--now", NOW, "--json")
    assert code == 3
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["good", "invalid"]


@pytest.mark.parametrize(
    "words",
    [[], ["show"], ["check"], ["check", "a", "b"], ["show", "a", "--now", "soon"], ["show", "a", "--now", "nan"],
     ["show", "a", "--uid", "-1"], ["show", "a", "--allocated", "1.5"], ["show", "a", "--json=x"], ["sh", "a"],
     ["show", "a", "--alloc", "3"], ["package"]],
)  # fmt: skip
def test_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith("--help\n")
    assert "argument" not in said.replace("option or argument", "")


def test_every_flag_and_fault_has_its_words():
    values = Path(commands.__file__).parent
    text = "".join((values / name).read_text() for name in ("values.py", "waste.py", "reader.py"))
    found = set(re.findall(r'(?:InvalidStatus|Unreadable|\.append|\.add)\(f?"([a-z-]+)"', text))
    found |= {*REASONS, "stale", "float", "spelling", "negative", "kill-negative", "draining-negative"}
    found |= {"draining-clamped"}
    assert found - set(WORDS) == set()
    assert len(found) > 25
    assert in_words("negative:add_uncom_time") == "add_uncom_time is negative"
    assert in_words("wrong-owner") == "the directory belongs to another user"
    assert waste.STALE_SECONDS == 600


@pytest.mark.slow
def test_the_reader_of_the_output_may_go(directory):
    receiving, sending = os.pipe()
    os.close(receiving)
    words = [sys.executable, "-m", "lodesman.site.jobstatus", "show", str(directory)]
    done = subprocess.run(words, stdout=sending, stderr=subprocess.PIPE, timeout=60, check=False, cwd=SOURCES)
    os.close(sending)
    assert (done.returncode, done.stderr) == (141, b"")


# --- write ----------------------------------------------------------------------------------------------------------------

SCRIPT = {"allocated": 8, "steps": [
    {"at": 1000, "do": "start", "payload": "a", "cores": 4, "expected_end": 4600},
    {"at": 2000, "do": "end", "payload": "a"},
]}  # fmt: skip


@pytest.fixture
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("script") / "steps.json"
    file.write_text(json.dumps(SCRIPT))
    return file


def test_write_publishes_what_a_script_says(tmp_path, script, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out = run(capsys, "write", "--script", script, ".")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert (lines[0]["keys"]["used_CPU"], lines[-1]["keys"]["used_CPU"]) == (4, 0)
    assert asked(capsys, tmp_path)[1]["keys"] == lines[-1]["keys"]


@pytest.mark.slow
def test_write_says_that_it_was_locked(directory, script, capsys, monkeypatch):
    monkeypatch.setattr(channel, "WRITER_WAIT_S", 0.05)
    with (directory / "used_CPU").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert run(capsys, "write", "--script", script, directory)[0] == 5
    assert (directory / "used_CPU").read_text() == "6\n"


def test_write_names_what_is_wrong(tmp_path, script, capsys):
    def said(*words):
        code = main(["write", *map(str, words)])
        return code, capsys.readouterr().err

    assert said("--script", tmp_path / "none", tmp_path)[0] == 2
    assert said("--script", script, tmp_path / "none") == (
        3,
        f"jobstatus: {tmp_path}/none: No such file or directory\n",
    )
    script.write_text("{")
    code, err = said("--script", script, tmp_path)
    assert (code, "not JSON" in err) == (2, True)
    script.write_bytes(b"\xff")
    assert said("--script", script, tmp_path)[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(capsys, tmp_path):
    assert main(["package", str(tmp_path / "no" / "such.pyz")]) == 2
    assert "No such file" in capsys.readouterr().err
