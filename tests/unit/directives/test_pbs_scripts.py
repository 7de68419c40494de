"""Scripts for PBS and Torque in the shape of public repositories: what is submitted of each, or why it is not."""

from tests.kits.scripts import Case, array, holds_all_cases

CASES = [
    Case(
        "one chunk of PBS Professional",
        """
        #!/bin/bash
        #PBS -N cfd
        #PBS -l select=1:ncpus=16:mem=62gb
        #PBS -l walltime=24:00:00
        #PBS -q workq -P ab12
        #PBS -j oe
        #PBS -m abe -M me@example.org

        cd $PBS_O_WORKDIR
        ./cfd case.in
        """,
        {
            "JobName": "cfd",
            "NumberOfProcessors": 16,
            "Memory": 63_488,
            "WallTime": 86_400,
            "CPUTime": 16 * 86_400,
            "StdOutput": "std.out",
            "StdError": "std.out",
        },
        variables={"PBS_O_WORKDIR": ".", "NCPUS": "16"},
        noted=("-q workq, -P ab12: it names a place", "-m abe, -M me@example.org: no mail"),
    ),
    Case(
        "Torque, without a first line for the kernel",
        """
        #PBS -l nodes=1:ppn=8,walltime=3600,pmem=2gb
        #PBS -V
        #PBS -S /bin/bash
        ./run $PBS_NUM_PPN
        """,
        {"NumberOfProcessors": 8, "Memory": 16_384, "WallTime": 3600},
        variables={"PBS_NUM_PPN": "8"},
        noted=("-V: nothing of your shell's",),
        interpreter="/bin/bash",
    ),
    Case(
        "several nodes of each kind",
        """
        #!/bin/bash
        #PBS -l select=2:ncpus=4
        #PBS -l nodes=4:ppn=2
        #PBS -l select=1:ncpus=2+1:ncpus=4
        #PBS -l nodes=node01+node02
        mpirun ./a.out
        """,
        {},
        refused={
            2: "-l select=2:ncpus=4 asks for several nodes",
            3: "-l nodes=4:ppn=2 asks for several nodes",
            4: "-l select=1:ncpus=2+1:ncpus=4 asks for several",
            5: "-l nodes=node01+node02 asks for several",
        },
    ),
    Case(
        "arrays of PBS Professional",
        """
        #!/bin/bash
        #PBS -J 0-90:10
        #PBS -o out/part.^array_index^ -e err
        #PBS -r y
        ./part $PBS_ARRAY_INDEX $PBS_JOBID
        """,
        {**array(0, 90, 10), "StdOutput": "out/part.%s", "StdError": "err", "MaxAttempts": 3},
        variables={"PBS_ARRAY_INDEX": "%s", "PBS_JOBID": "%(FirstJob)s[%s]"},
    ),
    Case(
        "arrays of Torque, with a limit",
        """
        #!/bin/sh
        #PBS -t 1,3,5-7%2
        #PBS -l mem=500mb -l cput=1:00:00 -l walltime=1:00:00:00
        ./part $PBS_ARRAYID
        """,
        {"Parameters": [1, 3, 5, 6, 7], "AtMost": 2, "Memory": 500, "CPUTime": 3600, "WallTime": 86_400},
        variables={"PBS_ARRAYID": "%s"},
    ),
    Case(
        "a dependency, files that are staged, a group",
        """
        #!/bin/bash
        #PBS -W depend=afterok:1234.server
        #PBS -W stagein=data@host:/x/data
        #PBS -W group_list=phys -W umask=022 -W block=true
        true
        """,
        {},
        refused={
            2: "-W depend=afterok:1234.server names jobs",
            3: "-W stagein=data@host:/x/data has files copied",
        },
        noted=("-W group_list=phys: it names a place",),
    ),
    Case(
        "GPUs, a property, a node of its own, a resource",
        """
        #!/bin/bash
        #PBS -l select=1:ncpus=4:ngpus=1:mpiprocs=4:ompthreads=2
        #PBS -l nodes=1:ppn=2:bigmem
        #PBS -l place=excl -l matlab=1 -l place=scatter
        true
        """,
        {"NumberOfProcessors": 2, "CPUTime": 172_800},
        refused={
            2: "-l select=1:ncpus=4:ngpus=1:mpiprocs=4:ompthreads=2 asks for GPUs",
            3: "-l nodes=1:ppn=2:bigmem asks for a property",
            4: ("-l place=excl asks for a node", "-l matlab=1 is a resource"),
        },
    ),
    Case(
        "lines stop at the first command, with blanks in front of them",
        """
        #!/bin/bash

          #PBS -N early -lwalltime=10:30
        # a comment
        set -u
        #PBS -J 1-10
        """,
        {"JobName": "early", "WallTime": 630},
        unread=[6],
    ),
    Case(
        "variables, a hold, a terminal, a later begin",
        """
        #!/bin/bash
        #PBS -v A=1,B="x y",DISPLAY -h -k oe -c n -p 100
        #PBS -I
        #PBS -a 0800
        cat $PBS_NODEFILE
        """,
        {},
        variables={"A": "1", "B": "x y"},
        refused={3: "-I asks for a terminal", 4: "-a 0800 says when"},
        noted=("DISPLAY: nothing of your shell", "PBS_NODEFILE, which is not set here"),
        hold=True,
    ),
    Case(
        "values that cannot be read",
        """
        #!/bin/bash
        #PBS -l walltime=soon,mem=lots,ncpus=few
        #PBS -r perhaps -c s --unknown
        true
        """,
        {},
        refused={
            2: (
                "-l walltime=soon cannot be read",
                "-l mem=lots cannot be read",
                "-l ncpus=few cannot be read",
            ),
            3: ("-r perhaps cannot be read", "-c s asks for checkpoints", "--unknown is not known"),
        },
    ),
    Case(
        "the memory of Torque by its other names",
        """
        #!/bin/bash
        #PBS -l vmem=2gb,walltime=60
        true
        """,
        {"WallTime": 60},
        refused={2: "-l vmem=2gb limits virtual memory"},
    ),
]


def test_ten_scripts_of_pbs():
    holds_all_cases(CASES)
