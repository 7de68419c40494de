"""Options that a script has twice: the last one counts, as in its batch system; values that ask for nothing or less."""

from tests.kits.scripts import array, translation
from tests.kits.table import hold_all

LAST = {
    "#SBATCH --no-requeue --requeue": {}, "#BSUB -rn\n#BSUB -r": {}, "#SBATCH --requeue --no-requeue": {"MaxAttempts": 1},
    "#SBATCH -a 1-9:2%3\n#SBATCH -a 1,7,4": {"Parameters": [1, 7, 4]}, "#PBS -J 1-9%2\n#PBS -J 2-4": array(2, 4),
    '#BSUB -J "a[1-9]%2"\n#BSUB -J "b[1-3]"': {**array(1, 3), "JobName": "b"},
    "#$ -tc 2 -t 1-9 -t 1-3": {**array(1, 3), "AtMost": 2},
    "#SBATCH --export=A=1\n#SBATCH --export=B=2": {"$B": "2"}, "#$ -v A=1 -v B=2": {"$A": "1", "$B": "2"},
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
        "#PBS -S ",
    ):
        (refusal,) = translation(f"#!/bin/sh\n{line}\ntrue\n").refusals
        assert refusal.reason == "cannot be read as that system would."
