"""Scripts for Grid Engine's qsub in the shape of public repositories: what is submitted of each, or why it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.scripts import Case, array, holds_all_cases, translation

from lodesman.decide.submission.native import record_of, values_of, with_free_memory
from lodesman.decide.submission.native_table import FREE_MEMORY
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.languages.gridengine.values import ComplexType, read_value

CASES = [
    Case(
        "an array with memory for each slot",
        """
        #!/bin/bash
        #$ -N blast
        #$ -cwd
        #$ -t 1-100
        #$ -tc 20
        #$ -pe smp 4
        #$ -l h_vmem=2G,h_rt=10:00:00
        #$ -o logs/$JOB_NAME.$JOB_ID.$TASK_ID.out -j y
        #$ -m ea -M me@example.org
        blastn -num_threads $NSLOTS -query part.$SGE_TASK_ID.fa
        """,
        {
            "JobName": "blast",
            **array(1, 100),
            "AtMost": 20,
            "NumberOfProcessors": 4,
            "PE": "smp",
            "Memory": 8192,
            "WallTime": 36_000,
            "CPUTime": 144_000,
            "StdOutput": "logs/blast.%(FirstJob)s.%s.out",
            "StdError": "logs/blast.%(FirstJob)s.%s.out",
        },
        variables={"SGE_TASK_ID": "%s", "NSLOTS": "4", "SGE_TASK_LAST": "100"},
        noted=("-cwd: each job begins in an empty folder of its own", "-m ea, -M me@example.org: no mail"),
    ),
    Case(
        "the two usual spellings of times, and the interpreter",
        """
        #!/bin/sh
        #$ -S /bin/bash
        #$ -l h_rt=3600 -l s_rt=3500
        #$ -V -q long.q@@big -P genomics
        echo $SGE_TASK_ID
        """,
        {"WallTime": 3600, "JobGroup": "genomics"},
        variables={"SGE_TASK_ID": "undefined"},
        noted=("-V: nothing of your shell's environment", "-q long.q@@big: it names a place"),
        interpreter="/bin/bash",
    ),
    Case(
        "a job that waits for another by its name",
        """
        #!/bin/bash
        #$ -S /bin/bash
        #$ -hold_jid prepare,clean* -N step2
        #$ -l h_rt=1:0:0,mem_free=500M
        ./step2
        """,
        {"JobName": "step2", "WallTime": 3600, "Memory": 500},
        refused={3: "-hold_jid prepare,clean* names jobs"},
    ),
    Case(
        "all lines are read, also behind commands",
        """
        #!/bin/csh
        echo begin
        #$ -l h_rt=0:30:0
        if (1) then
        #$ -t 2-10:2
        endif
        """,
        {"WallTime": 1800, **array(2, 10, 2)},
    ),
    Case(
        "a GPU, a licence, a host, an architecture",
        """
        #$ -l gpu=1,matlab=1
        #$ -l hostname=node12 -l arch=lx-amd64
        ./run
        """,
        {},
        refused={
            1: ("-l gpu=1 asks for GPUs", "-l matlab=1 is a resource"),
            2: ("-l hostname=node12 names hosts", "-l arch=lx-amd64 asks for a property"),
        },
    ),
    Case(
        "slots over nodes of a parallel environment, a range of them",
        """
        #$ -pe mpi 16-32 -R y -l h_vmem=1.5G,virtual_free=1G
        mpirun -np $NSLOTS -machinefile $PE_HOSTFILE ./a.out
        """,
        {
            "NumberOfProcessors": 16,
            "PE": "mpi",
            "Memory": 24_576,
            "CPUTime": 16 * 86_400,
            "Consumables": ["virtual_free=1G"],
        },
        variables={"NSLOTS": "16"},
        noted=("-R y", "it names PE_HOSTFILE, which is not set here"),
    ),
    Case(
        "free memory beside a limit is a request of its own",
        """
        #$ -l mem_free=8G,h_vmem=2G
        #$ -pe smp 2
        """,
        {
            "NumberOfProcessors": 2,
            "PE": "smp",
            "Memory": 4096,
            "CPUTime": 172_800,
            "Consumables": ["mem_free=8G"],
        },
    ),
    Case(
        "free memory alone, by its short names, and what is resident",
        """
        #$ -l mf=1G,vf=3G -l mem_free=2G -l h_rss=1G,s_vmem=9G
        """,
        {"Memory": 3072, "Consumables": ["mem_free=2G"]},
        noted=("-l h_rss=1G: limits of one process",),
    ),
    Case(
        "a limit that is none, beside free memory",
        """
        #$ -l h_vmem=INFINITY,mem_free=2G
        """,
        {"Consumables": ["mem_free=2G"]},
        noted=("-l h_vmem=INFINITY: no memory is asked for then",),
    ),
    Case(
        "resident memory alone",
        """
        #$ -l h_rss=1G -pe smp 2
        """,
        {"NumberOfProcessors": 2, "PE": "smp", "Memory": 2048, "CPUTime": 172_800},
    ),
    Case(
        "variables, a job class, a hold, no second try",
        """
        #$ -v MODE=fast,LEVEL=3,HOME
        #$ -jc app.large -h -r n
        """,
        {"MaxAttempts": 1},
        variables={"MODE": "fast", "LEVEL": "3"},
        noted=("HOME: nothing of your shell",),
        job_class="app.large",
        hold=True,
    ),
    Case(
        "soft requests, checkpoints, a later begin, notice of the end",
        """
        #$ -hard -l h_rt=60 -soft -l fast=1 -hard -l h_vmem=1K
        #$ -ckpt blcr -a 203001010800 -notify
        #$ -w e -b n -terse
        """,
        {"WallTime": 60, "Memory": 1},
        refused={
            2: ("-ckpt blcr asks for checkpoints", "-a 203001010800 says when", "-notify asks for a signal")
        },
        noted=("soft requests are wishes",),
    ),
    Case(
        "a folder by the number of the job, an output on a host",
        """
        #$ -o host1:/scratch/me/$JOB_ID.log -e /scratch/me/
        mkdir /tmp/${JOB_ID}
        """,
        {"StdOutput": "%(FirstJob)s.log", **array(1, 1)},
        variables={"JOB_ID": "%(FirstJob)s"},
        noted=("/scratch/me/: a job's output has the usual name",),
    ),
    Case(
        "values that cannot be read, and options that are not there",
        """
        #$ -l h_rt=soon,h_vmem=much -tc none -t 5-1
        #$ -l h_rt=INFINITY -pe smp
        #$ -nonsense
        """,
        {"PE": "smp", "WallTime": 0, "CPUTime": 86_400},
        refused={
            1: (
                "-l h_rt=soon cannot be read",
                "-l h_vmem=much cannot be read",
                "-tc none cannot be read",
                "-t 5-1 cannot be read",
            ),
            2: "-pe smp cannot be read",
            3: "-nonsense is not known",
        },
    ),
]


def test_ten_scripts_of_grid_engine():
    holds_all_cases(CASES)


def test_words_of_a_text_are_no_variables():
    found = translation("#$ -N trim\ntrimmomatic PE $QUEUE in.fq\n")
    assert found.notes[-1] == "it names QUEUE, which is not set here."


def test_a_value_is_a_word_of_its_own_and_what_is_soft_is_named():
    found = translation("#!/bin/sh\n#$ -l h_rt=60\n#$ -soft -l gpu=1\n#$ -verify\n#$ -clear\n", {})
    assert [one.option.words for one in found.refusals] == ["-verify", "-clear"]
    assert "without effect: -soft -l gpu=1: soft requests are wishes" in " ".join(found.notes)
    assert found.attributes["WallTime"] == 60


AMOUNTS = st.sampled_from(["1G", "2G", "1536M", "500M"])


@given(
    st.dictionaries(st.sampled_from(["h_vmem", "mem_free", "virtual_free"]), AMOUNTS, min_size=1),
    st.integers(1, 4),
)
def test_memory_of_a_line_is_what_a_class_makes_of_it(requests, slots):
    line = ",".join(f"{name}={amount}" for name, amount in requests.items())
    script = dict(translation(f"#$ -l {line} -pe smp {slots}\n").attributes)
    values = {"l_hard": dict(requests), "pe_name": "smp", "pe_range": str(slots)}
    record, _ = record_of({"Executable": "x"}, values, STOCK_COMPLEXES)
    record = with_free_memory(record, values, FREE_MEMORY, STOCK_COMPLEXES)
    assert script["Memory"] == record["Memory"]
    memory = [values_of(one, STOCK_COMPLEXES)[0]["l_hard"] for one in (script, record)]
    assert {name: amount_in(memory[0], name) for name in FREE_MEMORY if name in requests} == {
        name: amount_in(memory[1], name) for name in FREE_MEMORY if name in requests
    }


def amount_in(requests, name):
    """Bytes for each slot that a job asks for: its own request, else its Memory."""
    return read_value(ComplexType.MEMORY, requests.get(name) or requests["h_vmem"])


def test_time_of_processors_is_asked_for_each_slot():
    found = translation("#!/bin/sh\n#$ -l h_cpu=3600 -pe smp 4\ntrue\n", {})
    assert (found.attributes["NumberOfProcessors"], found.attributes["CPUTime"]) == (4, 14_400)


def test_a_request_of_memory_by_the_name_of_a_limit_is_no_limit():
    for amount, reason in (
        ("h_data=2G", "limits virtual memory"),
        ("h_scratch=20G", "is a resource of another cluster"),
    ):
        (refusal,) = translation(f"#!/bin/sh\n#$ -l {amount}\ntrue\n", {}).refusals
        assert reason in refusal.reason


def test_any_time_keeps_the_usual_limit_and_it_is_said():
    for lines in ("#$ -l h_rt=infinity", "#SBATCH --time=UNLIMITED", "#SBATCH -t 0"):
        found = translation(f"#!/bin/sh\n{lines}\ntrue\n", {})
        assert (found.attributes["WallTime"], found.attributes["CPUTime"]) == (0, 86_400)
        assert "CPUTime=86400" in found.notes[0]


@pytest.mark.parametrize(
    ("line", "has_none"),
    [
        ("#$ -v A=1,B,C", "B, C of -v A=1,B,C"),
        ("#$ -v B,C", "-v B,C"),
        ("#PBS -v A=1,B", "B of -v A=1,B"),
        ("#SBATCH --export=ALL,A=1", "ALL of --export=ALL,A=1"),
        ("#$ -l h_rt=3600,q=all.q", "-l q=all.q"),
        ("#PBS -l walltime=60,qos=high", "-l qos=high"),
        ('#BSUB -R "span[hosts=1] order[cpu]"', "order[cpu] of -R span[hosts=1] order[cpu]"),
    ],
)
def test_what_has_no_effect_is_named_without_what_has(line, has_none):
    (note,) = (one for one in translation(f"#!/bin/sh\n{line}\n").notes if one.startswith("without effect"))
    assert note.startswith(f"without effect: {has_none}: ")


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        ("#SBATCH --array=0-4000000", "4,000,001"),
        ("#$ -t 1-4000000:2", "2,000,000"),
        ("#BSUB -J x[1-600000,700000-1500000]", "1,400,001"),
        ("#PBS -J 0-1000000", "1,000,001"),
    ],
)
def test_an_array_that_is_too_large_is_refused_with_its_size(line, jobs):
    (refusal,) = translation(f"#!/bin/sh\n{line}\n").refusals
    assert refusal.reason == f"has {jobs} jobs; a submission has at most 1,000,000."
    assert refusal.hint == "Submit it in parts, each by an option: --array 1-1000."


def test_percent_signs_are_said_as_the_job_gets_them():
    for lines in ("#$ -t 1-3", "echo $JOB_ID"):
        found = translation(f"#!/bin/sh\n#$ -N my%job -o 5%_$TASK_ID\n{lines}\n", {})
        assert found.attributes["JobName"] == "my%%job"
        assert "JobName=my%job" in found.notes[0]
    of_array = translation("#!/bin/sh\n#$ -t 1-3 -o 5%_$TASK_ID\ntrue\n", {})
    assert "StdOutput=5%%_%s" in of_array.notes[0]
