"""Options that a script has twice: the last one counts, as in its batch system; values that ask for nothing or less."""

from tests.kits.scripts import array, translation
from tests.kits.table import hold_all

from lodesman.languages.directives.scripts import translate_script

LAST = {
    "#SBATCH --no-requeue --requeue": {}, "#BSUB -rn\n#BSUB -r": {}, "#SBATCH --requeue --no-requeue": {"MaxAttempts": 1},
    "#SBATCH -a 1-9:2%3\n#SBATCH -a 1,7,4": {"Parameters": [1, 7, 4]}, "#PBS -J 1-9%2\n#PBS -J 2-4": array(2, 4),
    '#BSUB -J "a[1-9]%2"\n#BSUB -J "b[1-3]"': {**array(1, 3), "JobName": "b"},
    "#$ -tc 2 -t 1-9 -t 1-3": {**array(1, 3), "AtMost": 2},
    "#SBATCH --export=A=1\n#SBATCH --export=B=2": {"$B": "2"}, "#$ -v A=1 -v B=2": {"$A": "1", "$B": "2"},
    "#BSUB -J a[1-3]%2\n#BSUB -J b": {"JobName": "b"}, "#BSUB -env A=1\n#BSUB -env B=2": {"$B": "2"},
    "#PBS -l select=1:ncpus=4:mem=8gb\n#PBS -l select=1:ncpus=2": {"NumberOfProcessors": 2, "CPUTime": 172800},
    "#PBS -l nodes=1:ppn=4,mem=8gb -l nodes=1": {"Memory": 8192},
    "#$ -l h_cpu=100:0:0 -l h_cpu=INFINITY -l h_rt=1:0:0": {"WallTime": 3600},
}  # fmt: skip


def test_the_last_of_two_counts():
    def check(case):
        lines, wanted = case
        found = translation(f"#!/bin/sh\n{lines}\ntrue\n")
        values = dict(found.attributes)
        own = {f"${name}": value for name, value in values.pop("Environment").items() if name in "AB"}
        assert (values | own, found.refusals) == (wanted, ())

    hold_all(LAST.items(), check)


def test_what_asks_for_nothing_is_not_refused():
    for line in ("--gpus=0", "-G 0", "--gpus-per-node=a100:0", "--gres=gpu:0", "--begin=now"):
        assert translation(f"#!/bin/sh\n#SBATCH {line}\ntrue\n").refusals == ()


def test_what_is_less_than_nothing_or_no_one_program_is_refused():
    for line in (
        "#$ -l h_rt=-5",
        "#$ -l h_vmem=-1G",
        '#$ -S "/bin/bash -l"',
        "#SBATCH --ntasks=",
    ):
        (refusal,) = translation(f"#!/bin/sh\n{line}\ntrue\n").refusals
        assert refusal.reason == "cannot be read as that system would."


def test_an_option_without_its_value_and_an_array_of_which_none_runs_are_refused():
    for line, reason in {
        "#SBATCH -J": "has no value.", "#SBATCH --output": "has no value.", "#$ -N": "has no value.",
        "#PBS -S ": "has no value.", "#SBATCH --output=": "has no value.",
        "#PBS -o": "has no value.", "#BSUB -J": "has no value.",
        "#SBATCH --job-name=": "cannot be read as that system would.",
        '#BSUB -J ""': "cannot be read as that system would.", "#SBATCH -a 1-9%": "cannot be read as that system would.",
        "#SBATCH -a 1-9%0": "lets none of its jobs run at a time.", "#PBS -J 1-9%0": "lets none of its jobs run at a time.",
        "#BSUB -J a[1-9]%0": "lets none of its jobs run at a time.",
    }.items():  # fmt: skip
        (refusal,) = translation(f"#!/bin/sh\n{line}\ntrue\n").refusals
        assert (line, refusal.reason) == (line, reason)


def test_lines_of_systems_that_are_not_read_are_refused():
    for mark in ("SLURM", "MOAB", "NQS", "CCS", "JSUB", "DSUB", "RSUB"):
        (refusal,) = translation(f"#!/bin/sh\n#{mark} -n 4\ntrue\n").refusals
        assert refusal.reason == "is a line of a batch system that is not read here."
        assert (
            translate_script(f"#!/bin/sh\n# {mark} -n 4\n#{mark} lines are gone\ntrue\n", "job.sh", {})
            is None
        )
