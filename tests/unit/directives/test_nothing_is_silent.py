"""Whatever stands in a line of a batch system: it is in the job, or it is said, or it is refused."""

import re
import time

import pytest
from tests.kits.scripts import translation
from tests.kits.table import hold_all

from lodesman.languages.directives import gridengine, lsf, pbs, slurm

SYSTEMS = {"#SBATCH": slurm, "#$": gridengine, "#PBS": pbs, "#BSUB": lsf}
# It only ends what -soft began.
ENDS = {("#$", "-hard")}


def said_of(line):
    """All that a line leads to."""
    found = translation(f"#!/bin/sh\n{line}\ntrue\n")
    notes = [one for one in found.notes if not one.endswith("say nothing here.")]
    # What each job of the system gets says nothing of the line.
    variables = found.attributes.get("Environment", {})
    rest = {name: value for name, value in found.attributes.items() if name != "Environment"}
    return rest, variables, found.refusals, notes, found.hold, found.job_class, found.interpreter


@pytest.mark.parametrize("mark", SYSTEMS)
def test_each_option_leads_to_something(mark):
    nothing = (*said_of(f"{mark} -")[:2], (), [], False, "", "")

    def check(name):
        words, _ = SYSTEMS[mark].OPTIONS[name]
        line = f"{mark} {name}{' 7' * max(words, 0)}"
        assert said_of(line) != nothing, line

    hold_all([name for name in SYSTEMS[mark].OPTIONS if (mark, name) not in ENDS], check)


@pytest.mark.parametrize("mark", SYSTEMS)
def test_what_is_no_option_is_refused(mark):
    def check(words):
        refused = translation(f"#!/bin/sh\n{mark} {words}\ntrue\n").refusals
        assert [one.option.line for one in refused] == [2] * len(refused) != []

    hold_all(["-frobnicate", "--frobnicate=1", "-", "-Zz 4", "--", "-%"], check)


@pytest.mark.parametrize("mark", SYSTEMS)
def test_a_limit_of_memory_time_or_tasks_that_cannot_be_read_is_refused(mark):
    names = {
        "#SBATCH": "--mem --mem-per-cpu --time --array --ntasks --cpus-per-task --nodes", "#$": "-t -tc -j -r",
        "#PBS": "-J -j -r", "#BSUB": "-W -M -n -c",
    }[mark].split()  # fmt: skip

    def check(name):
        refused = translation(f"#!/bin/sh\n{mark} {name} x%y\ntrue\n").refusals
        assert len(refused) == 1
        assert re.match(re.escape(name), refused[0].option.words)

    hold_all(names, check)


NINES = "9" * 5_000
NO_NUMBERS = {
    "#SBATCH": "-c #|-n #|--array=1-#|--array=1-9%#|--mem=#|-t #",
    "#$": "-t 1-#|-tc #|-pe smp #|-l h_rt=#",
    "#PBS": "-l ncpus=#|-J 1-9%#|-l mem=#|-l walltime=#",
    "#BSUB": "-n #|-J a[1-9]%#|-W #",
}


@pytest.mark.parametrize("mark", SYSTEMS)
@pytest.mark.parametrize("text", [NINES, "٣", "1_0", "inf", "nan", "²"], ids=lambda text: text[:4])
def test_what_is_no_number_of_ascii_digits_or_has_thousands_of_them_is_refused(mark, text):
    def check(words):
        refused = translation(f"#!/bin/sh\n{mark} {words.replace('#', text)}\ntrue\n").refusals
        assert len(refused) == 1

    hold_all(NO_NUMBERS[mark].split("|"), check)


def test_a_span_of_hosts_is_a_number():
    for text in (NINES, "٣"):
        refused = translation(f"#!/bin/sh\n#BSUB -n 2\n#BSUB -R span[ptile={text}]\ntrue\n").refusals
        assert len(refused) == 1


PER_CORE = {
    "#SBATCH --mem-per-cpu=2G": 8 * 2048, "#SBATCH -n 2 --mem-per-cpu=2G": 8 * 2048, "#SBATCH --mem=2G": 2048,
    "#PBS -l pmem=1gb": 8 * 1024, "#PBS -l mem=1gb": 1024, "#$ -l h_vmem=2G": 8 * 2048,
    "#$ -pe smp 4 -l h_vmem=1G": 8 * 1024,
}  # fmt: skip


def test_amounts_of_a_core_are_for_the_cores_that_the_user_says():
    def check(case):
        line, wanted = case
        found = translation(f"#!/bin/sh\n{line}\ntrue\n", {"NumberOfProcessors": 8})
        assert (found.attributes["NumberOfProcessors"], found.attributes["Memory"]) == (8, wanted)

    hold_all(PER_CORE.items(), check)


SAID = {
    "#SBATCH --gres=gpu:2": {"Tag": ["GPU"]}, "#$ -l gpu=1": {"Tag": ["GPU"]}, "#PBS -l select=1:ngpus=1": {"Tag": ["GPU"]},
    "#BSUB -gpu num=1": {"Tag": ["GPU"]}, "#SBATCH --exclusive": {"NumberOfProcessors": 64},
    "#SBATCH --nodes=2": {"NumberOfProcessors": 8}, "#BSUB -x": {"NumberOfProcessors": 8},
    "#PBS -l naccesspolicy=singlejob": {"NumberOfProcessors": 8},
    "#SBATCH --ntasks=2 --ntasks-per-node=1": {"NumberOfProcessors": 2},
}  # fmt: skip


def test_what_a_hint_says_is_taken_for_an_answer():
    def check(case):
        line, given = case
        assert [len(translation(f"#!/bin/sh\n{line}\ntrue\n", said).refusals) for said in ({}, given)] == [
            1,
            0,
        ]

    hold_all(SAID.items(), check)


HOSTS = [
    "#SBATCH -w n12", "#SBATCH --nodelist=n[1-4]", "#SBATCH -x n7", "#SBATCH --exclude=n7", "#SBATCH -F hosts.txt",
    "#$ -l hostname=n12", "#$ -l h='n1|n2'", "#$ -q all.q@n12", "#$ -l q=all.q@n12", "#$ -masterq a.q@@g,b.q@n1",
    '#BSUB -m "n1 n2"', "#PBS -l nodes=n12:ppn=4", "#PBS -l select=1:ncpus=4:host=n12", "#PBS -l vnode=n1,host=n1",
]  # fmt: skip


def test_names_of_hosts_are_refused_in_each_language_until_the_user_says_where():
    def check(line):
        script = f"#!/bin/sh\n{line}\ntrue\n"
        refusal = translation(script).refusals[0]
        assert refusal.reason == "names hosts of another cluster."
        for name in ("Site", "BannedSite", "GridCE", "Tag"):
            assert not translation(script, {name: ["x"]}).refusals

    hold_all(HOSTS, check)


def test_queues_and_groups_of_hosts_are_places():
    for line in (
        "#$ -q long.q@@big",
        "#$ -q a.q,b.q@*",
        "#$ -l qname=a.q",
        "#PBS -q long@server",
        "#SBATCH -p short",
    ):
        found = translation(f"{line}\ntrue\n")
        assert "without effect: " in found.notes[1], line
        assert not found.refusals, line


NONE_THERE = {"#SBATCH": "-c 0|-n 0", "#$": "-t 0-5|-t 0", "#PBS": "-l ncpus=0", "#BSUB": "-n 0|-J a[0-5]"}


@pytest.mark.parametrize("mark", SYSTEMS)
def test_no_cores_and_indexes_that_the_system_does_not_know_are_refused(mark):
    def check(words):
        refused = translation(f"#!/bin/sh\n{mark} {words}\ntrue\n").refusals
        assert [one.option.words for one in refused] == [words]

    hold_all(NONE_THERE[mark].split("|"), check)


@pytest.mark.parametrize("mark", SYSTEMS)
def test_calls_of_a_batch_system_or_of_modules_are_said(mark):
    body = (
        "module load root\n# srun is a comment\necho srun\nA=1\nif srun ./a; then\n  srun ./b\nfi\nmodules=1\n"
        "qsub next.sh\nexec ml python\n"
    )
    notes = translation(f"#!/bin/sh\n{mark} -x\n{body}").notes
    assert [one for one in notes if " calls " in one] == [
        "line 3 calls module, which is there only where the shells of the nodes define it: try one job first.",
        "line 7 calls srun, which knows nothing of this job: start the program itself.",
        "line 11 calls qsub, which may not be on the node, and what it submits is not followed here.",
        "line 12 calls ml, which is there only where the shells of the nodes define it: try one job first.",
    ]


def test_a_comment_is_no_line_of_grid_engine():
    dash = "\u2014"
    for comment in (f"#$ {dash} begin {dash}", "#$ a word", "#$VAR", "#$"):
        assert translation(f"#!/bin/sh\n#SBATCH --mem=1G\n{comment}\ntrue\n").refusals == ()


def test_a_call_of_mpi_without_a_number_is_said():
    def check(case):
        call, said = case
        notes = translation(f"#!/bin/sh\n#SBATCH -n 4\n{call}\n").notes
        assert (
            any(one.startswith("line 3 calls mpi") and one.endswith("say it by -np.") for one in notes)
            == said
        )

    bare = ["mpirun ./a.out", "time mpiexec ./a -x", "mpirun \\\n  --bind-to core ./a", "mpirun"]
    told = [
        "mpirun -np 4 ./a",
        "mpiexec -n $SLURM_NTASKS a",
        "mpirun \\\n --map-by core \\\n -np 4 a",
        "mpirun -n4 a",
    ]
    none = ["echo mpirun ./a", "# mpirun ./a", "mpirun_rsh -np 4 a"]
    hold_all([*((one, True) for one in bare), *((one, False) for one in told + none)], check)


LONG = ("a", "a[", "x[1]", "1,", "=", "'", "='", "\"',", "a='1,2',", "\\", "é")


READ_BY_PATTERNS = {
    "#SBATCH": "--array --time --mem --export",
    "#$": "-t -l -N -v",
    "#PBS": "-J -l -N -W -v",
    "#BSUB": "-R -J -W -env",
}


@pytest.mark.slow
@pytest.mark.parametrize("mark", SYSTEMS)
def test_long_lines_take_linear_time(mark):
    for name in READ_BY_PATTERNS[mark].split():
        for piece in LONG:
            begun = time.process_time()
            translation(f"#!/bin/sh\n{mark} {name} {piece * (60_000 // len(piece))}\ntrue\n")
            assert time.process_time() - begun < 10, (name, piece)


@pytest.mark.slow
@pytest.mark.parametrize("mark", SYSTEMS)
def test_long_bodies_take_linear_time(mark):
    """What a script says of its system's variables, and lines as of other systems."""
    for piece in (
        *LONG,
        "\n",
        " \n",
        f"{mark} ",
        f"\n{mark}",
        "SLURM_",
        "PBS_",
        "LSB_",
        "$JOB_ID",
        "${",
        "queue",
        "\n queue =",
    ):
        begun = time.process_time()
        translation(f"#!/bin/sh\n{mark} -x\n{piece * (200_000 // len(piece))}\n")
        assert time.process_time() - begun < 10, piece
