"""Times and sizes of a script's lines that its user can hardly mean, or that are no amounts: they are said in words."""

from tests.kits.scripts import translation
from tests.kits.table import hold_all

DAY = 86_400
ENDLESS = [
    *(f"#SBATCH {one}" for one in ("--time=UNLIMITED", "-t INFINITE", "--time=-1", "-t 0")),
    "#$ -l h_rt=INFINITY", "#$ -l h_cpu=infinity",
]  # fmt: skip


def test_any_time_is_said_in_words():
    def check(line):
        for cores, each in ((1, ""), (4, " for each core")):
            found = translation(f"#!/bin/sh\n{line}\ntrue\n", {"NumberOfProcessors": cores})
            words = line.partition(" ")[2]
            assert found.attributes["CPUTime"] == cores * DAY
            assert (
                f"{words}: no job is without a limit here, and this one has a day of CPU time{each}: --cpu-time or --time "
                "says how much it needs."
            ) in found.notes
        for given in ({"WallTime": 60}, {"CPUTime": 60}):
            assert not any("limit" in one for one in translation(f"{line}\ntrue\n", given).notes)

    hold_all(ENDLESS, check)


def test_any_processor_time_beside_a_limit_needs_no_word():
    found = translation("#$ -l h_rt=48:00:00,h_cpu=INFINITY\n")
    assert (found.attributes["CPUTime"], len(found.notes)) == (2 * DAY, 1)


NO_TIMES = [
    "#PBS -l walltime=UNLIMITED", "#PBS -l walltime=-1", "#PBS -l walltime=0", "#PBS -l cput=00:00:00", "#BSUB -W UNLIMITED",
    "#BSUB -W 0", "#BSUB -c 0:0", "#$ -l h_rt=0", "#$ -l h_cpu=0:0:0", "#$ -l h_rt=UNLIMITED", "#SBATCH --time=forever",
]  # fmt: skip


def test_what_is_no_time_for_that_system_is_refused():
    def check(line):
        (refusal,) = translation(f"#!/bin/sh\n{line}\ntrue\n").refusals
        assert (refusal.option.words, refusal.reason) == (
            line.partition(" ")[2],
            "cannot be read as that system would.",
        )

    hold_all(NO_TIMES, check)


def test_some_seconds_are_said():
    for line, hours in (("#PBS -l walltime=24", 24), ("#$ -l h_rt=10", 10)):
        assert (
            f"{line.partition(' ')[2]}: this is {hours} seconds; hours would be {hours}:00:00."
            in translation(f"{line}\ntrue\n").notes
        )
        longer = f"{line}\n{line.replace(f'={hours}', '=60')}\ntrue\n"
        assert len(translation(longer).notes) == 1


LITTLE = {
    "#PBS -l mem=4000": "4000 bytes, no more than 1 MB in all; did you mean 4000mb?",
    "#PBS -l nodes=1:ppn=2,pmem=4": "4 bytes, no more than 1 MB in all; did you mean 4gb?",
    "#PBS -l select=1:mem=8kb": "8kb, no more than 1 MB in all; did you mean 8gb?",
    "#$ -l h_vmem=2K": "2K, no more than 1 MB in all; did you mean 2G?",
    "#$ -pe smp 4 -l mem_free=512": "512 bytes, no more than 1 MB in all; did you mean 512M?",
    "#SBATCH --mem=8": "8, no more than 8 MB in all; did you mean 8G?",
    "#SBATCH -c 2 --mem-per-cpu=512K": "512K, no more than 1 MB in all; did you mean 512M?",
    "#BSUB -M 4KB": "4KB, no more than 1 MB in all; did you mean 4G?",
    '#BSUB -R "rusage[mem=4MB]"': "4MB, no more than 4 MB in all; did you mean 4G?",
}


def test_memory_that_no_program_can_do_with_is_said():
    def check(case):
        line, said = case
        script = f"#!/bin/sh\n{line}\ntrue\n"
        assert [one.partition(": ")[2] for one in translation(script).notes if "did you mean" in one] == [
            said
        ]
        assert "did you mean" not in " ".join(translation(script, {"Memory": 1000}).notes)

    hold_all(LITTLE.items(), check)


def test_usual_memory_is_not_remarked_and_none_is_refused():
    for line in (
        "#PBS -l mem=4000mb",
        "#PBS -l mem=40000000",
        "#SBATCH --mem=32",
        "#$ -l h_vmem=0.5G",
        "#BSUB -M 32MB",
    ):
        assert len(translation(f"{line}\ntrue\n").notes) == 1
    for line in ("#PBS -l mem=0", "#$ -l h_vmem=0", "#BSUB -M 0MB", "#SBATCH --mem-per-cpu=0M"):
        (refusal,) = translation(f"{line}\ntrue\n").refusals
        assert refusal.reason == "cannot be read as that system would."
