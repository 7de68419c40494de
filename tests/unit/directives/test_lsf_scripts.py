"""Scripts for LSF's bsub in the shape of public repositories: what is submitted of each, or why it is not."""

from tests.kits.scripts import Case, array, holds_all_cases, translation

CASES = [
    Case(
        "an array with one node for each job",
        """
        #!/bin/bash
        #BSUB -J "map[1-50]%10"
        #BSUB -n 4
        #BSUB -R "span[hosts=1] rusage[mem=8000]"
        #BSUB -W 12:00
        #BSUB -q normal -P proj
        #BSUB -o logs/map.%J.%I.out -e logs/map.%J.%I.err
        ./map $LSB_JOBINDEX
        """,
        {
            "JobName": "map",
            **array(1, 50),
            "AtMost": 10,
            "NumberOfProcessors": 4,
            "Memory": 8000,
            "WallTime": 43_200,
            "CPUTime": 172_800,
            "StdOutput": "logs/map.%(FirstJob)s.%s.out",
            "StdError": "logs/map.%(FirstJob)s.%s.err",
        },
        variables={"LSB_JOBINDEX": "%s", "LSB_DJOB_NUMPROC": "4"},
        noted=(
            "-q normal, -P proj: it names a place",
            "-R span[hosts=1] rusage[mem=8000]: mem=8000 is read as 8000 MB for all cores, as",
        ),
    ),
    Case(
        "minutes, memory with a unit, mail",
        """
        #!/bin/sh
        #BSUB -J single -W 90 -M 4GB
        #BSUB -N -B -u me@example.org
        echo $LSB_JOBID
        """,
        {"JobName": "single", "WallTime": 5400, "Memory": 4096, **array(1, 1)},
        variables={"LSB_JOBID": "%(FirstJob)s", "LSB_JOBINDEX": "0"},
        noted=("-N, -B, -u me@example.org: no mail",),
    ),
    Case(
        "memory without a unit",
        """
        #!/bin/sh
        #BSUB -M 4000000
        true
        """,
        {},
        refused={2: "-M 4000000 has no unit"},
    ),
    Case(
        "reserved memory without a unit that is not of MB",
        """
        #!/bin/sh
        #BSUB -R "rusage[mem=4]"
        #BSUB -M 4.5
        true
        """,
        {},
        refused={2: "-R rusage[mem=4] has no unit", 3: "-M 4.5 has no unit"},
    ),
    Case(
        "reserved memory in KB",
        """
        #!/bin/sh
        #BSUB -R "rusage[mem=8388608]"
        true
        """,
        {},
        refused={2: "-R rusage[mem=8388608] has no unit"},
    ),
    Case(
        "reserved memory with a unit, and for each task",
        """
        #!/bin/sh
        #BSUB -R "rusage[mem=4GB]"
        #BSUB -R "rusage[mem=4GB/task]"
        true
        """,
        {},
        refused={3: "-R rusage[mem=4GB/task] cannot be read"},
    ),
    Case(
        "cores over several nodes",
        """
        #!/bin/sh
        #BSUB -n 32 -R "span[ptile=16]"
        mpirun ./a.out
        """,
        {"NumberOfProcessors": 32, "CPUTime": 32 * 86_400},
        refused={2: "-R span[ptile=16] asks for several nodes"},
    ),
    Case(
        "cores within one node, a range of them",
        """
        #!/bin/sh
        #BSUB -n 8,16 -R "span[ptile=8]" -R "order[mem]"
        ./a.out
        """,
        {"NumberOfProcessors": 8, "CPUTime": 8 * 86_400},
        noted=("-R order[mem]: a job runs on one node",),
    ),
    Case(
        "a GPU, a dependency, a host of its own",
        """
        #!/bin/bash
        #BSUB -gpu "num=1:mode=exclusive_process"
        #BSUB -w "done(prep) && ended(1234)"
        #BSUB -x
        true
        """,
        {},
        refused={
            2: "-gpu num=1:mode=exclusive_process asks for GPUs",
            3: "-w done(prep) && ended(1234) names jobs",
            4: "-x asks for a node of its own",
        },
    ),
    Case(
        "properties, licences, GPUs among the requirements",
        """
        #!/bin/bash
        #BSUB -R "select[avx512] rusage[matlab=1,ngpus_physical=2]"
        #BSUB -R model==XEON
        true
        """,
        {},
        refused={
            2: (
                "-R select[avx512] rusage[matlab=1,ngpus_physical=2] asks for GPUs",
                "-R select[avx512] rusage[matlab=1,ngpus_physical=2] asks for a property",
                "-R select[avx512] rusage[matlab=1,ngpus_physical=2] is a resource",
            ),
            3: "-R model==XEON asks for a property",
        },
    ),
    Case(
        "lines are read behind commands, too",
        """
        #!/bin/bash
        export A=1
        #BSUB -J "late[1-9:2,20]"
        #BSUB -env "all, MODE=fast" -H -rn -c 2:00
        ./late
        """,
        {"JobName": "late", "Parameters": [1, 3, 5, 7, 9, 20], "MaxAttempts": 1, "CPUTime": 7200},
        variables={"MODE": "fast"},
        hold=True,
    ),
    Case(
        "commands around it, files, a later begin, a terminal",
        """
        #!/bin/bash
        #BSUB -E "prepare.sh" -f "a.txt > b.txt"
        #BSUB -b 20:00 -Is
        #BSUB -cwd /data/me -C 0 -K
        true
        """,
        {},
        refused={
            2: ("-E prepare.sh has a command", "-f a.txt > b.txt has files copied"),
            3: ("-b 20:00 says when", "-Is asks for a terminal"),
        },
        noted=("-cwd /data/me: each job begins",),
    ),
    Case(
        "values that cannot be read",
        """
        #!/bin/bash
        #BSUB -W 1:2:3 -n some -J "a[x]"
        #BSUB -zz
        true
        """,
        {"JobName": "a"},
        refused={
            2: ("-W 1:2:3 cannot be read", "-n some cannot be read", "-J a[x] cannot be read"),
            3: "-zz is not known",
        },
    ),
]


def test_ten_scripts_of_lsf():
    holds_all_cases(CASES)


def test_memory_with_a_unit_is_exact_and_an_option_needs_no_unit():
    exact = translation('#!/bin/sh\n#BSUB -R "rusage[mem=4G]"\n')
    assert (exact.attributes["Memory"], len(exact.notes)) == (4096, 1)
    for amount in ("4", "8000"):
        given = translation(f'#!/bin/sh\n#BSUB -R "rusage[mem={amount}]"\n', {"Memory": 50})
        assert (given.refusals, given.attributes["Memory"], "MB" in " ".join(given.notes)) == ((), 50, False)


def test_memory_of_several_cores_is_said_to_be_for_all_of_them():
    for cores, amount, said in (
        (
            4,
            "4G",
            "mem=4G is read as 4096 MB for all cores, as LSF has it unless RESOURCE_RESERVE_PER_TASK is set: --memory",
        ),
        (
            4,
            "4000",
            "4000 MB for all cores, as LSF has it unless LSF_UNIT_FOR_LIMITS or RESOURCE_RESERVE_PER_TASK is set",
        ),
        (1, "4G", ""),
    ):
        notes = translation(f'#!/bin/sh\n#BSUB -n {cores} -R "rusage[mem={amount}]"\ntrue\n').notes
        assert (len(notes), said in notes[-1]) == (1 + bool(said), True)


def test_flags_take_no_word_behind_them():
    for flag in ("-ul", "-hl", "-ti", "-K", "-B", "-N", "-r", "-rn", "-H"):
        found = translation(f"#!/bin/sh\n#BSUB {flag} -x\ntrue\n")
        assert found.refusals[-1].option.words == "-x", flag


def test_a_time_that_a_host_measures_is_refused():
    for line in ("-W 1:30/n1", "-c 90/XEON"):
        (refusal,) = translation(f"#!/bin/sh\n#BSUB {line}\ntrue\n").refusals
        assert (refusal.option.words, refusal.reason) == (line, "cannot be read as that system would.")


def test_lines_of_two_systems_must_agree_also_in_variables_and_holds():
    for lines in ("#SBATCH -c 2\n#PBS -l ncpus=2 -h", "#SBATCH --export=A=1\n#PBS -v A=2"):
        assert len(translation(f"#!/bin/sh\n{lines}\ntrue\n").refusals) == 1
    agreed = "#!/bin/sh\n#SBATCH -n 2 --export=A=1 -H\n#PBS -v A=1 -h -l select=1:ncpus=2:mpiprocs=2\ntrue\n"
    assert translation(agreed).refusals == ()


def test_lines_of_two_systems_must_agree():
    both = "#!/bin/sh\n#SBATCH --time=60 -c 2\n#PBS -l walltime=1:00:00,nodes=1:ppn=2\necho\n"
    assert translation(both).refusals == ()
    (refusal,) = translation(both.replace("ppn=2", "ppn=4")).refusals
    assert refusal.option.line == 3
    assert "the other lines of PBS ask for something else than those of Slurm" in refusal.reason


def test_lines_of_systems_that_are_not_read_are_refused():
    for line in (
        "#OAR -l nodes=2",
        "#PJM -L node=4",
        "#COBALT -n 4",
        "#MSUB -l x",
        "#flux: -N 2",
        "# flux: --nodes=4",
        "#FLUX: -N 4",
        "#HQ --cpus=4 --array=1-4",
        "# @ node = 2",
        "#DW stage_in",
    ):
        (refusal,) = translation(f"#!/bin/sh\n{line}\ntrue\n").refusals
        assert (refusal.option, refusal.reason) == (
            (2, line),
            "is a line of a batch system that is not read here.",
        )


def test_cores_by_affinity_are_refused_and_variables_of_the_second_system_named():
    found = translation('#!/bin/sh\n#BSUB -n 1\n#BSUB -R "affinity[core(4)]"\n', {})
    assert [one.option.words for one in found.refusals] == ["-R affinity[core(4)]"]
    assert not translation('#!/bin/sh\n#BSUB -R "affinity[core(4)]"\n', {"NumberOfProcessors": 4}).refusals
    both = translation("#!/bin/sh\n#SBATCH --array=1-3\n#$ -t 1-3\necho $SGE_TASK_ID\n", {})
    assert "it names SGE_TASK_ID, which is not set here." in both.notes
