"""`lode submit` and `lode plan job` with scripts and files of other batch systems."""

import pytest
from tests.unit.cli.test_cli_submit import accepting, sent
from tests.unit.cli.test_cli_submit_commands import submitted

from lodesman.languages.jobs import read_description

__all__ = ["accepting", "submitted"]
ARRAY = """#!/bin/bash
#SBATCH --job-name=fit -c4 --mem-per-cpu=2G
#SBATCH --array=1-20%5 --time=01:30:00 -o fit_%A_%a.log
#SBATCH --partition=long
./fit $SLURM_ARRAY_TASK_ID
"""
REFUSED = "#!/bin/sh\n#SBATCH --gres=gpu:1 --mem=1G\n#SBATCH -d afterok:77\ntrue\n"


def test_a_script_of_slurm_is_submitted_whole(submitted, accepting, home):
    (home / "a.sh").write_text(ARRAY)
    job, said = submitted("--memory", "9G", "a.sh", "100%s", code=0)
    assert (job.name, job.cores, job.memory_mb, job.wall_seconds, job.at_most) == ("fit", 4, 9216, 5400, 5)
    assert (job.std_output, job.std_error) == ("fit_%(FirstJob)s_%s.log", "fit_%(FirstJob)s_%s.log")
    assert job.environment["SLURM_ARRAY_TASK_ID"] == "%s"
    assert job.arguments == ("100%%s",)
    record = read_description(sent(accepting)[-1]["text"]).record
    assert (record["Parameters"], record["ParameterStart"]) == (20, 1)
    values = (
        "JobName=fit, Parameters=20, ParameterStart=1, ParameterStep=1, AtMost=5, WallTime=5400, NumberOfProcessors=4, "
        "StdOutput=fit_%(FirstJob)s_%s.log, StdError=fit_%(FirstJob)s_%s.log, Memory=9216"
    )
    place = (
        "it names a place or an account of another cluster: --site, --tag and --group say where and for whom"
    )
    assert said.splitlines() == [
        f"lode: a.sh: #SBATCH lines of Slurm and options, which go first, say {values}.",
        f"lode: a.sh: without effect: --partition=long: {place}.",
    ]


@pytest.mark.parametrize(
    ("lines", "words", "values"),
    [
        ("#SBATCH --time=60 --mem=1G", ("--memory", "2G", "--time", "2h"), "Memory=2048, WallTime=7200"),
        ("#SBATCH --time=60", ("--cores", "2"), "WallTime=3600, NumberOfProcessors=2"),
        ("#SBATCH --export=MODE=fast,LEVEL=3", (), "Environment.MODE=fast, Environment.LEVEL=3"),
        ("#$ -v MODE=fast", ("--env", "MODE=slow", "--env", "SECRET=x"), "Environment.MODE=slow"),
        ("#$ -jc app -h", ("--class", "other"), "JobClass=other, Held=until it is released"),
        ("#PBS -v A=1,B", (), "Environment.A=1"),
        ('#BSUB -env "all, MODE=fast"', (), "Environment.MODE=fast"),
        ("#SBATCH -p long", ("--memory", "2G"), "nothing here"),
    ],
)
def test_what_is_said_of_a_script_is_what_its_job_gets(submitted, home, lines, words, values):
    (home / "a.sh").write_text(f"#!/bin/sh\n{lines}\ntrue\n")
    job, said = submitted(*words, "a.sh")
    first = said.splitlines()[0]
    assert first.endswith(f" say {values}.")
    assert ("and options, which go first," in first) == (
        words[:1] not in ((), ("--class",)) and "nothing here" not in said
    )
    for name, value in (one.split("=") for one in values.split(", ") if one.startswith("Environment.")):
        assert job.environment[name.removeprefix("Environment.")] == value


def test_what_cannot_be_had_is_refused_with_its_line_and_nothing_is_submitted(at, accepting, home):
    (home / "a.sh").write_text(REFUSED)
    for command in (("submit",), ("submit", "--dry-run"), ("plan", "job")):
        result = at(*command, "a.sh")
        assert (result.code, result.out) == (1, "")
        gpu, order = result.err.splitlines()
        assert gpu.startswith(
            "lode: a.sh:2:1: --gres=gpu:1 asks for GPUs, which are not counted here yet. A tag may name "
        )
        assert order == (
            "lode: a.sh:3:1: -d afterok:77 names jobs of another batch system, which this server cannot know. "
            "Give ids that lode submit printed: --after-ok 12-20, or --after. Or go on without it: --ignore-foreign."
        )
    assert sent(accepting) == []


def test_one_may_go_on_without_it_and_is_told(submitted, home):
    (home / "a.sh").write_text(REFUSED)
    job, said = submitted("--ignore-foreign", "a.sh")
    assert job.memory_mb == 1024
    assert "a.sh:2: ignored: --gres=gpu:1 asks for GPUs" in said
    assert "a.sh:3: ignored: -d afterok:77 names jobs" in said
    (home / "b.sh").write_text(
        "#!/bin/sh\n#LODE --ignore-foreign --after 5 --memory 2G\n" + REFUSED.partition("\n")[2]
    )
    job, said = submitted("b.sh")
    assert (job.memory_mb, job.after, "afterok" in said) == (2048, ("5",), False)


def test_options_stay_if_all_lines_are_ignored(submitted, home):
    (home / "a.sh").write_text("#!/bin/sh\n#OAR -l nodes=2\ntrue\n")
    job, said = submitted("--ignore-foreign", "--memory", "2G", "a.sh")
    assert job.memory_mb == 2048
    assert "a.sh:2: ignored: #OAR -l nodes=2 is a line of a batch system that is not read here." in said


def test_a_script_of_pbs_needs_no_first_line_for_the_kernel(submitted, home):
    (home / "job.pbs").write_text("#PBS -N old -S /bin/bash\n#PBS -l nodes=1:ppn=2\ncd $PBS_O_WORKDIR\n")
    job, _ = submitted("job.pbs", "x")
    assert (job.executable, job.arguments, job.input_sandbox) == ("/bin/bash", ("job.pbs", "x"), ("job.pbs",))
    assert (job.name, job.cores, job.environment["PBS_O_WORKDIR"]) == ("old", 2, ".")


def test_a_class_and_a_hold_of_grid_engine_are_those_of_the_submission(at, accepting, home):
    (home / "a.sh").write_text("#!/bin/sh\n#$ -jc app -h\ntrue\n")
    at("submit", "a.sh")
    at("submit", "--class", "other", "a.sh")
    first, second = sent(accepting)
    assert first["hold"]
    classes = [read_description(one["text"]).record["JobClass"] for one in (first, second)]
    assert classes == ["app", "other"]


def test_lines_of_a_script_that_is_a_word_of_a_command_are_not_read_and_that_is_said(submitted, home):
    (home / "a.sh").write_text(ARRAY)
    for words in (("./a.sh",), ("bash", "a.sh")):
        job, said = submitted("--", *words)
        assert job.cores == 1
        assert (
            f"{words[-1]} stands after --, so its lines of batch systems are not read: lode submit {words[-1]}."
            in said
        )


def test_lines_behind_the_first_command_are_said(submitted, home):
    (home / "a.sh").write_text("#!/bin/sh\ntrue\n#SBATCH --mem=4G\n")
    job, said = submitted("a.sh")
    assert job.memory_mb == 0
    assert "a.sh:3: this line stands after the first command, where no batch system reads it." in said


@pytest.mark.parametrize("executable", [False, True])
def test_files_of_htcondor_are_named_as_such(at, accepting, home, executable):
    submit = "executable = fit.sh\nrequest_memory = 1G\nqueue 5\n"
    (home / "a.sub").write_text(submit)
    (home / "b.sub").write_text(f"#!/usr/bin/env condor_submit\n{submit}")
    (home / "a.dag").write_text("JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n")
    for name, kind in (
        ("a.sub", "a submit file of HTCondor"), ("b.sub", "a submit file of HTCondor"),
        ("a.dag", "a DAG of HTCondor (DAGMan)"),
    ):  # fmt: skip
        (home / name).chmod(0o755 if executable else 0o644)
        result = at("submit", name)
        assert result.code == 1
        assert f"{name}: This is {kind}, which is not read here." in result.err
        for words in (("submit", "-"), ("convert", "-", "--to", "jdl"), ("submit", "--form", "cfg", "-")):
            result = at(*words, stdin=(home / name).read_bytes())
            assert (result.code, f"standard input: This is {kind}" in result.err) == (1, True), words
    assert sent(accepting) == []


def test_a_folder_of_the_user_is_seen_by_the_command(at, accepting, home, monkeypatch):
    monkeypatch.setenv("MINE", str(home))
    (home / "logs").mkdir()
    (home / "a.sh").write_text("#!/bin/sh\n#$ -o $MINE/logs -e $MINE/logs\ntrue\n")
    result = at("submit", "a.sh")
    assert "without effect: $MINE/logs/: a job's output has the usual name" in result.err


def test_lines_far_behind_that_are_not_read_are_said(submitted, home):
    filler = ("#" * 99 + "\n") * 2700
    for name, line, said in (("a.sh", "#$ -t 1-9", True), ("b.sh", "#$1 -t\\n#BSUBS -n 4", False)):
        (home / name).write_text(f"#!/bin/sh\n{filler}{line}\ntrue\n")
        _, notes = submitted(name)
        far = f"lode: {name}:2702: this line and those behind it are not read: they are behind the first 256 KB."
        assert (far in notes) == said
