"""What the hint of a refused line says clears the refusal."""

import re

import pytest
from tests.kits.scripts import translation
from tests.kits.table import hold_all

from lodesman.languages.directives import gridengine, lsf, pbs, slurm

SYSTEMS = {"#SBATCH": slurm, "#$": gridengine, "#PBS": pbs, "#BSUB": lsf}
# Options of `lode submit`, and the attribute that each is.
SAYS = {
    "--memory": "Memory", "--cores": "NumberOfProcessors", "--tag": "Tag", "--site": "Site", "--after-ok": "AfterOk",
    "--after": "After", "--env": "Environment", "--array": "Parameters", "--at-most": "AtMost",
}  # fmt: skip
MORE = {
    "#SBATCH": ["--gres=lustre:1", "--gres=gpu:2", "--nodes=2", "--mem=0", "-d singleton", "--mem=x", "--array=1-3%0"],
    "#$": ["-l h_data=1G", "-l matlab=1", "-l gpu=1", "-l excl=1", "-l arch=x", "-l h=n1", "-v A='1,2'", "-l h_vmem=x"],
    "#PBS": [
        "-l nodes=1:ppn=2,vmem=1gb", "-l pvmem=1gb", "-l matlab=1", "-l nodes=2", "-l select=1:ngpus=1", "-l place=excl",
        "-l nodes=1:ppn=1#excl", "-l nodes=1:ppn=1#big", "-l nodes=1:big", "-l arch=x", "-l host=n1", "-l select=1:lic=1",
        "-v A='1,2'", "-l mem=x", "-j x",
    ],
    "#BSUB": ["-R rusage[lic=1]", "-R rusage[ngpus=1]", "-R select[big]", "-R affinity[core(4)]", "-M 4", "-x"],
}  # fmt: skip


def said_by(hint):
    """The attributes that the options in a hint are."""
    return {name for option, name in SAYS.items() if re.search(rf"{option}\b(?!-)", hint)} | set(
        re.findall(r"--set (\w+)=", hint)
    )


@pytest.mark.parametrize("mark", SYSTEMS)
def test_each_attribute_that_a_hint_names_clears_the_refusal(mark):
    def check(words):
        script = f"#!/bin/sh\n{mark} {words}\ntrue\n"
        for one in translation(script).refusals:
            for name in said_by(one.hint):
                given = {name: {"A": "1"} if name == "Environment" else 4}
                left = [other.option.words for other in translation(script, given).refusals]
                assert one.option.words not in left, (words, name, one.hint)

    known = [f"{name}{' 7' * max(words, 0)}" for name, (words, _) in SYSTEMS[mark].OPTIONS.items()]
    hold_all([*known, *MORE[mark]], check)


def test_a_limit_of_virtual_memory_names_memory_alone():
    for line in ("#PBS -l vmem=1gb", "#PBS -l pvmem=1gb", "#$ -l h_data=1G"):
        (one,) = translation(f"#!/bin/sh\n{line}\ntrue\n").refusals
        assert said_by(one.hint) == {"Memory"}, line
