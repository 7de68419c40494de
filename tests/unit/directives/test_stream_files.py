"""Where a script's lines send the two streams: never into one file that the batch system would have kept apart."""

from tests.kits.table import hold_all

from lodesman.languages.directives.scripts import translate_script

FOLDERS = {"logs", "/data/me/logs"}
# Lines -> the files of both streams; "" is the usual name.
STREAMS = {
    "#$ -o logs -e logs": ("", ""), "#$ -o logs/ -e logs/": ("", ""), "#$ -o logs -e logs -j y": ("", "std.out"),
    "#$ -o n1:/data/me/logs -e err.txt": ("", "err.txt"), "#$ -o logs": ("", ""), "#$ -o all -e all": ("all", "all"),
    "#PBS -o logs/ -e logs/": ("", ""), "#PBS -o logs -e logs": ("", ""), "#PBS -o logs -j oe": ("", "std.out"),
    "#PBS -e logs/ -j eo": ("", "std.out"), "#BSUB -o logs/ -e logs/": ("", ""), "#BSUB -o logs/": ("", "std.out"),
    "#SBATCH -o logs/ -e logs/": ("", ""), "#SBATCH -o a.log -e ./a.log": ("a.log", "a.log"),
    "#SBATCH -o /x/out/a.log -e /x/err/a.log": ("a.log", ""), "#PBS -e $HOME/e/1 -o $HOME/o/1": ("", "1"),
    "#$ -o out/$JOB_NAME -e err/$JOB_NAME": ("out/job.sh", "err/job.sh"),
}  # fmt: skip


def test_the_two_streams_share_a_file_only_where_the_batch_system_joins_them():
    def check(case):
        lines, wanted = case
        found = translate_script(f"#!/bin/sh\n{lines}\ntrue\n", "job.sh", {}, is_folder=FOLDERS.__contains__)
        names = tuple(found.attributes.get(name, "") for name in ("StdOutput", "StdError"))
        assert names == wanted
        usual = ": a job's output has the usual name where it can have no such one: std.out, std.err."
        assert ("" in names or "std.out" in names) == any(one.endswith(usual) for one in found.notes)

    hold_all(STREAMS.items(), check)
