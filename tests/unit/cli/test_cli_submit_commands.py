"""`lode submit` without a description: commands, scripts with #LODE lines, options, and the files that go along."""

import io
import os
import tarfile

import pytest
from tests.unit.cli.test_cli_submit import HELLO, accepting, asked_about, sent

from lodesman.languages.jobs import read_description, read_job

__all__ = ["accepting"]
SCRIPT = """#!/bin/sh
#LODE --memory 4G --name big   # as for lode submit
#
#LODE --set CPUTime=1h --tag gpu

echo hello
"""


@pytest.fixture
def submitted(at, accepting, home):
    """Submit; the job of the description that was sent."""

    def submit(*words, code=0):
        result = at("submit", *words)
        assert result.code == code, result.err
        return read_job(read_description(sent(accepting)[-1]["text"]).record).spec, result.err

    return submit


def members_of(accepting, home, uploads):
    """Names, modes and contents of an archive that was uploaded."""
    (data,) = [one.body for one in uploads if one.body[:2] == b"\x1f\x8b"]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name: (one.mode, tar.extractfile(one).read()) for one in tar}


def test_a_line_of_a_shell_is_no_program(at, accepting, home):
    result = at("submit", "--", "python fit.py --n 3")
    assert result.code == 1
    assert result.err == (
        "lode: python fit.py --n 3: is one word with blanks in it, and no program is called so. Leave the quotes out; "
        "or let a shell run it: lode submit -- sh -c 'python fit.py --n 3'\n"
    )
    assert not accepting.of("POST", "/v1/jobs")
    (home / "my fit").write_text("")
    assert at("submit", "--", "my fit").code == at("submit", "--", "/opt/my tools/fit").code == 0


def test_a_command_is_a_job(submitted):
    job, said = submitted("--", "echo", "--memory", "a b", "%s", "")
    assert (job.executable, job.arguments, job.name) == ("echo", ("--memory", "a b", "%s", ""), "echo")
    assert (job.input_sandbox, said) == ((), "")


def test_options_are_attributes(submitted):
    job, _ = submitted(
        "--cores", "4", "--memory", "4G", "--time", "1h30m", "--cpu-time", "1-00:00:30", "--site", "A,B", "--tag", "x",
        "--name", "fit", "--set", "Priority=3", "--set", 'Environment=[A="1"]', "--set", "jobgroup=run 7",
        "--keep", "*.root", "--keep", "log", "--", "true",
    )  # fmt: skip
    assert (job.cores, job.memory_mb, job.wall_seconds, job.norm_cpu_seconds) == (4, 4096, 5400, 86_430)
    assert (job.sites, job.tags, job.name, job.user_priority) == (("A", "B"), ("x",), "fit", 3)
    assert (job.environment, job.project, job.output_sandbox) == ({"A": "1"}, "run 7", ("*.root", "log"))
    assert submitted("--job-group", "may", "--", "true")[0].project == "may"


def test_variables_are_added_to_those_of_the_description(submitted, home, monkeypatch):
    monkeypatch.setenv("FROM_HERE", "its own")
    (home / "a.jdl").write_text('Executable = "x"; Environment = {"A=old", "B=kept"};')
    more = ("--env", "A=x=1; y ", "--env", "a=1", "--env", "FROM_HERE", "--env", "A2=", "--env", "A2=last")
    job, _ = submitted(*more, "a.jdl")
    assert job.environment == {
        "A": "x=1; y ", "B": "kept", "a": "1", "FROM_HERE": "its own", "A2": "last",
    }  # fmt: skip
    (home / "b.sh").write_text("#!/bin/sh\n#LODE --env A=line --env L=1\n")
    assert submitted("--env", "A=given", "--env", "C=", "b.sh")[0].environment == {
        "A": "given",
        "L": "1",
        "C": "",
    }
    # A whole Environment takes the place of the description's.
    assert submitted("--set", "Environment=Z=1", "a.jdl")[0].environment == {"Z": "1"}
    assert submitted("--set", "Environment=Z=1", "--env", "Y=2", "a.jdl")[0].environment == {
        "Z": "1",
        "Y": "2",
    }


def test_a_wrong_environment_of_a_description_is_refused_whatever_is_added(at, accepting, home):
    (home / "bad.jdl").write_text('Executable = "x"; Environment = {"no equals sign"};')
    result = at("submit", "--env", "A=1", "bad.jdl")
    assert (result.code, "'no equals sign', which is not of the form NAME=value" in result.err) == (1, True)
    assert not accepting.of("POST", "/v1/jobs")


def test_each_line_of_a_file_is_a_job(submitted, accepting, home):
    (home / "list.txt").write_text("a.dat\n\n  b c.dat \n", encoding="utf-8")
    job, said = submitted("--each-line", "list.txt", "--at-most", "1", "--", "fit", "%s")
    record = read_description(sent(accepting)[-1]["text"]).record
    assert (record["Parameters"], record["AtMost"], job.arguments) == (["a.dat", "b c.dat"], 1, ("%s",))
    assert (
        said
        == "lode: In an array %s in the command is the index or line of each job, and %% is a percent sign.\n"
    )
    (home / "list.txt").write_bytes(b"\xff\n")
    assert (
        "list.txt cannot be read: it is no text"
        in submitted("--each-line", "list.txt", "--", "fit", code=2)[1]
    )


def test_a_job_waits_for_others_by_options(submitted, home):
    job, _ = submitted("--after", "12,15-20", "--after", "30", "--after-ok", "100", "--on-parent-failure", "Cancel",
                       "--", "true")  # fmt: skip
    assert (job.after, job.after_ok, job.on_parent_failure) == (("12", "15-20", "30"), ("100",), "cancel")
    (home / "a.sh").write_text("#!/bin/sh\n#LODE --after-ok 7-9:index --array 1-3\ntrue\n")
    assert submitted("a.sh")[0].after_ok == ("7-9:index",)
    assert submitted("--after-ok", "5", "--set", "Parameters=1", "a.sh")[0].after_ok == ("5",)


def test_options_win_over_the_description_and_the_last_one_counts(submitted, home):
    (home / "a.jdl").write_text(
        '[ Executable = "x"; MaxRAM = 1; cputime = 5; Parameters = 2; ParameterStart = 4; ]'
    )
    job, _ = submitted(
        "a.jdl", "--memory", "2G", "--cpu-time", "2h", "--set", "CPUTime=9", "--set", "Parameters=7"
    )
    assert (job.memory_mb, job.norm_cpu_seconds) == (2048, 9)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--time", "60"), "'60' has no unit: write 60m, 60h or 60s"),
        (("--memory", "lots"), "not a number. Give whole megabytes"),
        (("--memory", "1m30k"), "not a number"),
        (("--time", "3 parsec"), "not a number"),
        (("--cores", "0"), "is too small"),
        (
            ("--array", "260"),
            "260 is one number: write 1-260 for 260 jobs, or 260-260 for one job with that index.",
        ),
        (("--after", "x"), "After has 'x', which is neither a job id nor a range of them"),
        (("--after-ok", "9-3"), "a range that runs backwards"),
        (("--on-parent-failure", "retry"), "is neither hold nor cancel"),
        (
            ("--array", "0-4000000"),
            "0-4000000 has 4,000,001 jobs; a submission has at most 1,000,000. Submit it in parts, such as 0-999999.",
        ),
        (
            ("--array", "0-4000000:3"),
            "1,333,334 jobs; a submission has at most 1,000,000. Submit it in parts",
        ),
        (("--array", "5-1"), "has no member"),
        (("--array", "1-9:0"), "has no member"),
        (("--array", "1,x"), "is no range"),
        (("--array", "1-3,2"), "twice"),
        (("--each-line", "nowhere"), "nowhere cannot be read: No such file or directory"),
        (("--each-line", "/dev/null"), "/dev/null has no line"),
        (("--array", "1-3%0"), "AtMost is too small. Give a whole number from 1"),
        (("--array", "1-3%"), "not a number"),
        (("--at-most", "0"), "AtMost is too small. Give a whole number from 1"),
        (("--at-most", "few"), "AtMost is the text 'few', not a number"),
        (("--set", "CPUTime"), "is not NAME=VALUE"),
        (("--set", "Tag={"), "Tag: line 1, column"),
        (("--env", "NOT_SET_HERE"), "is not NAME=VALUE, and no variable of this shell"),
        (("--env", "A B=1"), "names no variable"),
        (("--env", "LODE_JOB=1"), "a job cannot set what begins with"),
    ],
)
def test_wrong_options_are_wrong_usage(at, accepting, words, says):
    result = at("submit", *words, "--", "true")
    assert result.code == 2
    assert says in result.err
    assert accepting.asked == []


@pytest.mark.parametrize(
    ("array", "indexes"),
    [
        ("1-500", range(1, 501)),
        ("0-90:40", (0, 40, 80)),
        ("7-7", (7,)),
        ("1,5,7-9", (1, 5, 7, 8, 9)),
        ("3,8-9:5", (3, 8)),
    ],
)
def test_an_array_is_one_submission(at, accepting, array, indexes):
    at("submit", "--array", array, "--", "echo", "%s")
    (body,) = sent(accepting)
    record = read_description(body["text"]).record
    first, step = record.get("ParameterStart"), record.get("ParameterStep")
    given = record["Parameters"]
    assert list(indexes) == (given if first is None else [first + step * n for n in range(given)])


@pytest.mark.parametrize(
    ("words", "at_most"),
    [
        (("--array", "1-500%10"), 10),
        (("--array", "1,5,7-9%2"), 2),
        (("--array", "1-500", "--at-most", "10"), 10),
        (("--array", "1-500%10", "--at-most", "20"), 20),
        (("--array", "1-500", "--set", "AtMost=3"), 3),
    ],
)
def test_how_many_members_run_at_once_is_said_as_sbatch_does_or_apart(at, accepting, words, at_most):
    at("submit", *words, "--", "echo", "%s")
    (body,) = sent(accepting)
    assert read_description(body["text"]).record["AtMost"] == at_most


def test_a_line_of_a_script_says_how_many_run_at_once(submitted, home):
    (home / "a.sh").write_text("#!/bin/sh\n#LODE --array 1-9 --at-most 2\ntrue\n")
    job, _ = submitted("a.sh")
    assert job.at_most == 2


def test_that_an_array_fills_the_command_is_said(at, accepting):
    assert "%s" in at("submit", "--array", "1-2", "--", "date", "+%s").err
    assert at("submit", "--array", "1-2", "--", "date").err == ""


def test_a_script_is_a_job_that_travels(submitted, home, accepting):
    (home / "run").mkdir()
    (home / "run" / "fit.sh").write_text(SCRIPT)
    job, said = submitted("--memory", "2G", "run/fit.sh", "a", "--n", "3")
    assert (job.executable, job.arguments, job.input_sandbox) == ("fit.sh", ("a", "--n", "3"), ("fit.sh",))
    # The command line wins.
    assert (job.memory_mb, job.name, job.norm_cpu_seconds, job.tags) == (2048, "big", 3600, ("gpu",))
    assert [one.body.decode() for one in accepting.of("POST", "/v1/sandboxes")] == [SCRIPT]
    assert said == ""


def test_the_command_line_wins_whatever_the_order(submitted, home):
    (home / "a.sh").write_text(
        "#!/bin/sh\n#LODE --cpu-time 1h --set X=1 --keep a --set Y=1 --hold-if-impossible\n"
    )
    job, _ = submitted("--set", "X=2", "--keep", "b", "--set", "CPUTime=2h", "a.sh")
    assert (job.norm_cpu_seconds, job.output_sandbox, job.extra) == (7200, ("a", "b"), {"X": 2, "Y": 1})


def test_an_executable_file_is_a_script_and_a_description_stays_one(submitted, home):
    (home / "plain").write_text("echo hello\n")
    (home / "plain").chmod(0o755)
    assert submitted("plain")[0].executable == "plain"
    (home / "a.jdl").write_text(HELLO)
    (home / "a.jdl").chmod(0o755)
    assert submitted("a.jdl")[0].executable == "/bin/echo"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--memery 4G", "a.sh:2: No such option"),
        ("--memory lots", "a.sh:2: Invalid value for '--memory': Memory is the text 'lots'"),
        ("--name 'x", "a.sh:2: No closing quotation."),
        ("other.jdl", "a.sh:2: 'other.jdl' is no option."),
    ],
)
def test_a_wrong_line_of_a_script_is_named(at, accepting, home, line, says):
    (home / "a.sh").write_text(f"#!/bin/sh\n#LODE {line}\n")
    result = at("submit", "a.sh")
    assert result.code == 2
    assert says in result.err
    assert accepting.asked == []


def test_files_beside_a_script_that_stay_here_are_named(submitted, home):
    for name in ("fit.py", "data.csv", "out.txt", "old.log", "taken.txt", "unnamed.txt", "commented.py"):
        (home / name).write_text("x")
    (home / "sub").mkdir()
    (home / "a.sh").write_text(
        "#!/bin/sh\n#LODE --keep old.log\n# see commented.py\n"
        'python ./fit.py --in="data.csv" taken.txt >out.txt 2>> old.log && cp old.log sub; cat $HOME/unnamed.txt a.sh\n'
    )
    assert submitted("--files", "taken.txt", "a.sh")[1] == (
        "lode: a.sh names fit.py, data.csv, which are in this folder but are not sent with the job: "
        "add --files fit.py --files data.csv.\n"
    )
    assert submitted("--no-files", "a.sh")[1] == ""
    job, said = submitted("--files", "*.py", "--files", "*.csv", "--files", "taken.txt", "a.sh")
    assert (said, set(job.input_sandbox) >= {"fit.py", "data.csv"}) == ("", True)
    (home / "sub" / "b.sh").write_text("#!/bin/sh\npython fit.py plot.py\n")
    (home / "sub" / "plot.py").write_text("x")
    assert submitted("sub/b.sh")[1] == (
        "lode: b.sh names plot.py, which is beside it in sub but is not sent with the job: "
        "submit it there (cd sub), and add --files plot.py.\n"
    )


def test_a_file_that_a_command_names_is_sent(submitted, home):
    (home / "fit.py").write_text("x")
    job, said = submitted("--", "python", "fit.py")
    assert job.input_sandbox == ("fit.py",)
    assert said.startswith("lode: The job takes along fit.py (1 file, 1 B).")


def test_lines_that_are_not_read_are_said(submitted, home):
    (home / "a.sh").write_text("#!/bin/sh\n##LODE --cores 4\ntrue\n#LODE --cores 2\n")
    job, said = submitted("a.sh", "--cores=3")
    assert job.cores == 1
    assert "a.sh:4: #LODE stands after the first command and is not read" in said
    assert "--cores=3 stands after a.sh and goes to it" in said


def test_what_is_neither_a_description_nor_a_script_gets_a_hint(at, accepting, home):
    (home / "a.sh").write_text("echo hi\n")
    assert "let it begin with #!" in at("submit", "a.sh").err
    assert "lode submit -- python fit.py --n 3" in at("submit", "python", "fit.py", "--n", "3").err
    (home / "a.jdl").write_text(HELLO)
    assert "a.jdl is no script: a command after -- stands alone" in at("submit", "a.jdl", "--", "x").err
    for words in ((), ("--",)):
        assert at("submit", *words).code == 2
    assert sent(accepting) == []


@pytest.mark.parametrize(
    ("name", "text", "words", "command"),
    [
        ("fit.py", "import sys\n", ("--n", "3"), "python3 fit.py --n 3"),
        ("fit", "echo $1\n", ("-x", "a b"), "sh fit -x 'a b'"),
        ("a.jdl", HELLO, ("--n",), ""),
    ],
)
def test_options_after_a_program_that_is_no_script_get_the_command_to_type(
    at, accepting, home, name, text, words, command
):
    (home / name).write_text(text)
    result = at("submit", name, *words)
    assert result.code == 2
    if command:
        assert result.err == (
            f"lode: {name} is no description, and no script, since it does not begin with #!. A command stands after two "
            f"dashes: lode submit -- {command}. See: lode submit --help\n"
        )
    else:
        assert "No such option '--n'" in result.err
    assert accepting.asked == []


def test_a_script_may_be_piped_in(at, accepting, home):
    (home / "fit.py").write_text("x")
    result = at(
        "submit",
        "--cores",
        "2",
        "-",
        "7",
        "--n",
        stdin=b"#!/bin/sh\n#LODE --name big --cores 3\npython fit.py\n",
    )
    assert result.code == 0
    job = read_job(read_description(sent(accepting)[-1]["text"]).record).spec
    assert (job.executable, job.arguments, job.name, job.cores) == ("script", ("7", "--n"), "big", 2)
    assert job.input_sandbox == ("script",)
    assert (
        "script names fit.py, which is in this folder but is not sent with the job: add --files fit.py."
        in result.err
    )
    (uploaded,) = accepting.of("POST", "/v1/sandboxes")
    assert b"python fit.py" in uploaded.body


def test_a_fault_in_a_script_that_is_piped_in_has_its_line(at, accepting):
    assert (
        "standard input:2: No such option" in at("submit", "-", stdin=b"#!/bin/sh\n#LODE --memery 4G\n").err
    )
    assert at("submit", "-", stdin=HELLO.encode()).code == 0
    assert len(sent(accepting)) == 1


def test_a_script_stands_alone(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    (home / "a.sh").write_text(SCRIPT)
    assert "a.sh: is a script." in at("submit", "a.jdl", "a.sh").err
    assert sent(accepting) == []


def test_small_files_that_the_command_names_go_along_and_are_said(submitted, home, accepting):
    (home / "fit.py").write_text("fit")
    (home / "conf.ini").write_text("conf")
    (home / "in").mkdir()
    (home / "in" / "a.txt").write_text("a")
    job, said = submitted(
        "--", "python", "fit.py", "--conf=conf.ini", "in/a.txt", "/etc/hostname", ".", "nowhere"
    )
    assert job.input_sandbox == ("fit.py", "conf.ini", "in/")
    assert said == "lode: The job takes along fit.py, conf.ini, in/a.txt (3 files, 8 B).\n"
    assert members_of(accepting, home, accepting.of("POST", "/v1/sandboxes")) == {"in/a.txt": (0o644, b"a")}


def test_files_in_a_shell_command_go_along(submitted, home):
    (home / "fit.py").write_text("fit")
    (home / "docs").mkdir()
    job, said = submitted("--", "sh", "-c", "python fit.py >docs")
    assert job.input_sandbox == ("fit.py",)
    assert "fit.py" in said


def test_none_goes_along_if_the_user_says_so(submitted, home):
    (home / "fit.py").write_text("fit")
    assert submitted("--no-files", "--", "python", "fit.py")[0].input_sandbox == ()


@pytest.mark.parametrize("name", ["data", "large"])
def test_folders_and_large_files_go_along_when_asked(at, accepting, home, name):
    (home / "data").mkdir()
    (home / "data" / "x").write_text("x")
    with (home / "large").open("wb") as file:
        file.truncate(9 << 20)
    result = at("submit", "--", "cat", name)
    assert result.code == 1
    assert f"The command names {name}, which is a f" in result.err
    assert f"--files {name}" in result.err
    assert "--no-files" in result.err
    assert at("submit", "--files", name, "--", "cat", name).code == 0
    assert at("submit", "--no-files", "--", "cat", name).code == 0


def test_a_number_is_no_name_of_a_file(submitted, home):
    (home / "3").mkdir()
    (home / "4").write_text("x")
    job, said = submitted("--", "/bin/echo", "3", "4")
    assert job.arguments == ("3", "4")
    assert not job.input_sandbox
    assert not said


def test_a_program_of_this_folder_goes_along(submitted, home):
    (home / "bin").mkdir()
    for name in ("fit", "bin/fit", "true"):
        (home / name).write_text("#!/bin/sh\n")
    for said, executable, files in (
        ("./fit", "fit", ("fit",)), ("fit", "fit", ("fit",)), ("bin/fit", "bin/fit", ("bin/",)), ("true", "true", ()),
    ):  # fmt: skip
        job, _ = submitted("--", said)
        assert (job.executable, job.input_sandbox) == (executable, files)


def test_files_folders_and_patterns(submitted, home, accepting):
    (home / "lib" / "deep").mkdir(parents=True)
    (home / "lib" / "run").write_text("r")
    (home / "lib" / "run").chmod(0o755)
    (home / "lib" / "deep" / "x").write_text("x")
    for name in ("b.txt", "a.txt", ".hidden.txt"):
        (home / name).write_text(name)
    job, said = submitted("--files", "lib", "--files", "*.txt", "--", "lib/run")
    assert (job.executable, job.input_sandbox, said) == ("lib/run", ("a.txt", "b.txt", "lib/"), "")
    packed = members_of(accepting, home, accepting.of("POST", "/v1/sandboxes"))
    assert packed == {"lib/deep/x": (0o644, b"x"), "lib/run": (0o755, b"r")}
    # The same files are the same bytes: nothing is uploaded again.
    uploads = len(accepting.of("POST", "/v1/sandboxes"))
    submitted("--files", "lib", "--", "lib/run")
    assert len(accepting.of("POST", "/v1/sandboxes")) == uploads


def test_files_go_along_with_a_description_too(submitted, home):
    (home / "sub").mkdir()
    (home / "sub" / "a.jdl").write_text('[ Executable = "x"; InputSandbox = "one"; ]')
    (home / "sub" / "one").write_text("1")
    (home / "two").write_text("2")
    assert submitted("sub/a.jdl", "--files", "two")[0].input_sandbox == ("one", "two")


def test_a_description_may_name_a_folder(submitted, home, accepting):
    (home / "data").mkdir()
    (home / "data" / "x").write_text("x")
    os.utime(home / "data" / "x", (1_000, 1_000))
    (home / "a.jdl").write_text('[ Executable = "x"; InputSandbox = {"data/"}; ]')
    assert submitted("a.jdl")[0].input_sandbox == ("data/",)
    assert list(sent(accepting)[0]["sandboxes"]) == ["data/"]
    assert members_of(accepting, home, accepting.of("POST", "/v1/sandboxes")) == {"data/x": (0o644, b"x")}
    with tarfile.open(fileobj=io.BytesIO(accepting.of("POST", "/v1/sandboxes")[0].body)) as tar:
        assert [one.mtime for one in tar] == [1_000]


def test_what_cannot_be_packed_is_said(at, accepting, home):
    (home / "data").mkdir()
    (home / "data" / "link").symlink_to("/nowhere")
    result = at("submit", "--files", "data", "--", "true")
    assert result.code == 1
    assert "data/link is no plain file" in result.err
    assert "there is no such file" in at("submit", "--files", "x*", "--", "true").err


def test_a_plan_takes_the_same_and_uploads_nothing(at, accepting, home):
    (home / "a.sh").write_text(SCRIPT)
    (home / "fit.py").write_text("fit")
    for words in (("plan", "job"), ("submit", "--dry-run")):
        at(*words, "a.sh", "fit.py")
    first, second = (one.json for one in accepting.of("POST", "/v1/plan/job"))
    assert first == second
    assert read_job(read_description(first["text"]).record).spec.input_sandbox == ("a.sh", "fit.py")
    assert accepting.of("POST", "/v1/sandboxes") == asked_about(accepting) == []


def test_files_above_the_description_go_along(submitted, home, accepting):
    (home / "sub").mkdir()
    (home / "sub" / "a.jdl").write_text('[ Executable = "x"; InputSandbox = {"../one", "../set/"}; ]')
    (home / "one").write_text("1")
    (home / "set").mkdir()
    (home / "set" / "y").write_text("y")
    assert submitted("sub/a.jdl")[0].input_sandbox == ("../one", "../set/")
    assert members_of(accepting, home, accepting.of("POST", "/v1/sandboxes")) == {"set/y": (0o644, b"y")}
    assert submitted("--files", "sub/../set", "--", "true")[0].input_sandbox == ("set/",)


def test_a_line_of_a_script_names_no_program_to_run_here(at, home):
    (home / "a.sh").write_text("#!/bin/sh\n#LODE --jsv ./evil.sh\ntrue\n")
    found = at("submit", "a.sh")
    assert (found.code, "a.sh:2: --jsv names a program that runs here" in found.err) == (2, True)
