"""Scripts for sbatch in the shape of public repositories: what is submitted of each, or why it is not."""

import pytest
from tests.kits.scripts import Case, array, holds_all_cases, translation

from lodesman.languages.directives.amounts import slurm_seconds

DAY = 86_400
CASES = [
    Case(
        "alignment with an array and a log for each task",
        """
        #!/bin/bash
        #SBATCH --job-name=align
        #SBATCH --array=1-96%12
        #SBATCH --cpus-per-task=8
        #SBATCH --mem=32G
        #SBATCH --time=04:00:00
        #SBATCH --output=logs/align_%A_%a.out
        #SBATCH --error=logs/align_%A_%a.err
        #SBATCH --partition=short
        #SBATCH --mail-type=END,FAIL
        #SBATCH --mail-user=me@example.org

        module load samtools
        SAMPLE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" samples.txt)
        bwa mem -t $SLURM_CPUS_PER_TASK ref.fa $SAMPLE.fq > $SAMPLE.sam
        """,
        {
            "JobName": "align",
            **array(1, 96),
            "AtMost": 12,
            "NumberOfProcessors": 8,
            "Memory": 32_768,
            "WallTime": 14_400,
            "CPUTime": 115_200,
            "StdOutput": "logs/align_%(FirstJob)s_%s.out",
            "StdError": "logs/align_%(FirstJob)s_%s.err",
        },
        variables={"SLURM_ARRAY_TASK_ID": "%s", "SLURM_CPUS_PER_TASK": "8", "SLURM_ARRAY_TASK_MAX": "96"},
        noted=("--partition=short", "--mail-type=END,FAIL, --mail-user=me@example.org: no mail is sent"),
    ),
    Case(
        "training on a GPU",
        """
        #!/bin/bash
        #SBATCH -J train
        #SBATCH -p gpu --gres=gpu:a100:2
        #SBATCH -c 16 --mem=64000
        #SBATCH -t 2-00:00:00
        #SBATCH -o %x-%j.out
        python train.py --epochs 90
        """,
        {
            "JobName": "train",
            "NumberOfProcessors": 16,
            "Memory": 64_000,
            "WallTime": 2 * DAY,
            "CPUTime": 32 * DAY,
            "StdOutput": "train-%j.out",
            "StdError": "train-%j.out",
            **array(1, 1),
        },
        refused={3: "--gres=gpu:a100:2 asks for GPUs"},
    ),
    Case(
        "MPI over two nodes",
        """
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=28
        #SBATCH --time=30
        #SBATCH --exclusive
        mpirun ./solver input.nml
        """,
        {"NumberOfProcessors": 28, "WallTime": 1800},
        refused={2: "--nodes=2 asks for several nodes", 5: "--exclusive asks for a node of its own"},
    ),
    Case(
        "MPI within one node, memory for each core",
        """
        #!/bin/bash
        #SBATCH -N1 -n 8 --mem-per-cpu=1500M
        #SBATCH --time=90:30   # minutes and seconds
        #SBATCH --hint=nomultithread --account=proj01 --qos=normal
        srun --mpi=pmix ./lmp -in in.melt
        """,
        {"NumberOfProcessors": 8, "Memory": 12_000, "WallTime": 5430},
        variables={"SLURM_NTASKS": "8", "SLURM_CPUS_PER_TASK": "1"},
        noted=("--hint=nomultithread: a job runs on one node", "--account=proj01, --qos=normal"),
    ),
    Case(
        "the second step of a pipeline",
        """
        #!/bin/bash -l
        #SBATCH --dependency=afterok:8812345
        #SBATCH --job-name merge
        #SBATCH --time=1-6
        #SBATCH --kill-on-invalid-dep=yes
        ./merge.sh
        """,
        {"JobName": "merge", "WallTime": 108_000, "CPUTime": 108_000},
        refused={2: "--dependency=afterok:8812345 names jobs of another batch system"},
    ),
    Case(
        "steps and lists of indexes",
        """
        #!/usr/bin/env python3
        #SBATCH --array=1,3,7-11:2
        #SBATCH --time=0
        import os
        print(os.environ["SLURM_ARRAY_TASK_ID"], os.environ["SLURM_ARRAY_JOB_ID"])
        """,
        {"Parameters": [1, 3, 7, 9, 11], "WallTime": 0, "CPUTime": 86_400},
        variables={"SLURM_ARRAY_JOB_ID": "%(FirstJob)s", "SLURM_ARRAY_TASK_COUNT": "5"},
    ),
    Case(
        "scratch by the number of the job, and variables",
        """
        #!/bin/sh
        #SBATCH --export=NONE
        #SBATCH --export=OMP_PLACES=cores,MODE=fast
        #SBATCH --chdir=/home/me/run --requeue --nice=100
        #SBATCH --output=/home/me/logs/run.%j.log
        SCRATCH=$TMPDIR/$SLURM_JOB_ID; mkdir "$SCRATCH"; date +%s
        """,
        {"StdOutput": "run.%j.log", "StdError": "run.%j.log", **array(1, 1)},
        variables={"SLURM_JOB_ID": "%j", "OMP_PLACES": "cores", "MODE": "fast"},
        noted=("--chdir=/home/me/run: each job begins in an empty folder",),
    ),
    Case(
        "lines behind the first command, comments and an option that is cut short",
        """
        #!/bin/bash
        ##SBATCH --array=1-10
        # SBATCH --mem=4G

          # a comment
        #SBATCH --job-n=plain --ntasks=1
        #SBATCH --mem=4096K --time=2-12:30
        set -e
        #SBATCH --array=1-50
        echo done
        """,
        {"JobName": "plain", "NumberOfProcessors": 1, "Memory": 4, "WallTime": 217_800, "CPUTime": 217_800},
        unread=[9],
    ),
    Case(
        "checkpoints by a signal, a later begin, a licence, a feature, a container",
        """
        #!/bin/bash
        #SBATCH --signal=B:USR1@300 --begin=2030-01-01
        #SBATCH -L matlab:1 -C "haswell&ssd" --tmp=100G
        #SBATCH --mem=0 --container=/images/a.sif --no-requeue
        #SBATCH --frobnicate=3
        #SBATCH hetjob
        ./run
        """,
        {"MaxAttempts": 1},
        refused={
            2: ("--signal=B:USR1@300 asks for a signal", "--begin=2030-01-01 says when"),
            3: (
                "-L matlab:1 is a resource",
                "-C haswell&ssd asks for a property",
                "--tmp=100G asks for room",
            ),
            4: ("--mem=0 asks for all memory", "--container=/images/a.sif asks for a container"),
            5: "--frobnicate=3 is not known",
            6: "hetjob begins the next part",
        },
    ),
    Case(
        "values that cannot be read",
        """
        #!/bin/bash
        #SBATCH --time=tomorrow --mem=lots --array=5-1
        #SBATCH -n many --job-name="x
        #SBATCH --dependency=singleton
        true
        """,
        {},
        refused={
            2: ("--time=tomorrow cannot be read", "--array=5-1 cannot be read", "--mem=lots cannot be read"),
            3: ('-n many --job-name="x has a quote'),
            4: "--dependency=singleton lets one job",
        },
    ),
]


def test_ten_scripts_of_slurm():
    holds_all_cases(CASES)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600), ("10:30", 630), ("1:10:30", 4230), ("2-3", 183_600), ("2-3:15", 184_500), ("2-3:15:20", 184_520),
        ("UNLIMITED", 0), ("0", 0), ("", None), ("1:2:3:4", None), ("x-1", None), ("1-", None), ("-5", None), ("1.5", None),
    ],
)  # fmt: skip
def test_the_six_forms_of_times(text, seconds):
    assert slurm_seconds(text) == seconds


def test_what_the_user_says_goes_first_and_lifts_what_cannot_be_known():
    script = "#!/bin/sh\n#SBATCH -d afterok:7 -C ssd -N 2 --array=1-5 -J x\necho\n"
    given = {"AfterOk": ["12"], "Tag": "SSD", "Parameters": 3, "JobName": "mine", "Environment": ["A=%s"]}
    found = translation(script, given)
    assert [one.option.words for one in found.refusals] == ["-N 2"]
    assert found.attributes["Parameters"] == 3
    assert (
        found.attributes["Environment"]["A"] == "%s"
    )  # the array is the user's, and so are its placeholders
    assert (found.attributes["Environment"]["SLURM_ARRAY_TASK_COUNT"], found.literal) == ("3", False)


def test_an_array_on_the_command_line_sets_the_index():
    found = translation("#!/bin/sh\n#SBATCH --mem=1G\necho\n", {"Parameters": [4, 8]})
    assert found.attributes["Environment"]["SLURM_ARRAY_TASK_ID"] == "%s"
    assert (
        "SLURM_ARRAY_TASK_ID"
        not in translation("#SBATCH --mem=1G\n", {"Parameters": ["a"]}).attributes["Environment"]
    )


def test_texts_of_an_array_stand_for_themselves():
    script = '#!/bin/sh\n#SBATCH -a 1-2 --job-name="100%s" --export="F=%n" -o "%%s_%a"\necho\n'
    found = translation(script, {"Environment": {"G": "%j"}})
    assert (found.attributes["JobName"], found.attributes["StdOutput"], found.literal) == (
        "100%%s",
        "%%s_%s",
        True,
    )
    assert (found.attributes["Environment"]["F"], found.attributes["Environment"]["G"]) == ("%%n", "%%j")


@pytest.mark.parametrize("name", ["%N.out", "%u.log", "/dev/null", "logs/", "%j_%t.out"])
def test_an_output_whose_name_has_no_meaning_here_keeps_the_usual_one(name):
    found = translation(f"#SBATCH -o {name}\n")
    assert {"StdOutput", "StdError"} & found.attributes.keys() == {"StdError"}
    assert found.attributes["StdError"] == "std.out"
    assert f"{name}: a job's output has the usual name" in " ".join(found.notes)


def test_variables_that_are_not_set_are_named():
    found = translation(
        "#!/bin/sh\n#SBATCH -n 2\nscontrol show hostnames $SLURM_JOB_NODELIST; echo $SLURM_NTASKS\n"
    )
    assert found.notes[-2:] == (
        "it names SLURM_JOB_NODELIST, which is not set here.",
        "line 3 calls scontrol, which knows nothing of this job.",
    )


def test_the_variables_of_tasks_follow_the_cores_of_the_user():
    script = "#!/bin/sh\n#SBATCH {}\necho $SLURM_NTASKS\n"
    found = {
        (line, cores): [translation(script.format(line), {"NumberOfProcessors": cores}).attributes["Environment"].get(name)
        for name in ("SLURM_NTASKS", "SLURM_CPUS_PER_TASK")]
        for line, cores in (("-n 4", 2), ("-c 2", 4), ("-n 4 -c 2", 6), ("-n 4 -c 4", 2))
    }  # fmt: skip
    assert found == {
        ("-n 4", 2): ["2", "1"], ("-c 2", 4): ["1", "4"], ("-n 4 -c 2", 6): ["3", "2"], ("-n 4 -c 4", 2): ["1", "2"],
    }  # fmt: skip
