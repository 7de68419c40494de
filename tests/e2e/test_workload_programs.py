"""The programs of the example workload, run here with the arguments that their descriptions give them."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from math import pi, sqrt
from pathlib import Path

import pytest
from examples.demo.compose import Composition, compose
from examples.demo.png import read_png
from examples.demo.workload import EXAMPLES, Submission, describe, input_files, load_workload

from lodesman.languages.jobs import JobSpec, Template

LIMIT_S = 300
ROOT = EXAMPLES / "workload"
WORKLOAD = load_workload(ROOT / "workload.toml")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One payload that ended here: its directory, exit code (negative: signal), output and error text."""

    folder: Path
    code: int
    out: str
    err: str
    cpu_seconds: float


def submission(name: str) -> Submission:
    return next(one for one in WORKLOAD.submissions if one.path == ROOT / name)


def member(name: str, index: int) -> JobSpec:
    description = describe(submission(name))
    if description.members is None:
        return description.spec
    return Template(description.spec, description.members).expand(index, 1000 + index)


def play(name: str, index: int, folder: Path, *, arguments: tuple[str, ...] | None = None) -> Ended:
    """Run one member as a pilot would: its own directory, its input sandbox, an empty standard input."""
    spec = member(name, index)
    folder.mkdir(parents=True)
    for file in input_files(submission(name), spec):
        shutil.copy(file, folder)
    argv = [f"./{spec.executable}", *(spec.arguments if arguments is None else arguments)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        argv,
        cwd=folder,
        env={"PATH": PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(folder=folder, code=run.returncode, out=run.stdout, err=run.stderr, cpu_seconds=cpu)


def wanted(name: str, index: int, ended: Ended) -> list[Path]:
    """What the output sandbox of this member asks for and the payload left."""
    return [path for pattern in member(name, index).output_sandbox for path in ended.folder.glob(pattern)]


def compose_words(results: Path, count: int) -> Composition:
    return compose(results, {"words": range(count)}, results.parent / "out")


@pytest.mark.parametrize(
    ("name", "index"),
    [
        (str(one.path.relative_to(ROOT)), index)
        for one in WORKLOAD.submissions
        if "Done" in one.expect and one.composer != "pi"
        for index in (0, one.jobs - 1)
    ],
)
def test_the_first_and_the_last_job_of_each_description_work(name, index, tmp_path):
    ended = play(name, index, tmp_path / "job")
    assert (ended.code, ended.err) == (0, "")
    assert len(wanted(name, index, ended)) == 1
    assert ended.cpu_seconds < 10


def test_real_tiles_of_a_small_picture_join_without_seams(tmp_path):
    results = tmp_path / "results"
    for index in range(12):
        play("render/upper-half.jdl", 0, results / str(index), arguments=(str(index), "50x35", "4x3"))
    whole = play("render/upper-half.jdl", 0, tmp_path / "whole", arguments=("0", "50x35", "1x1"))
    got = compose(results, {"picture": range(12)}, tmp_path / "out")
    picture = got.picture
    assert picture is not None
    assert picture.path is not None
    assert (picture.width, picture.height, picture.found, picture.missing) == (50, 35, 12, ())
    assert got.faults == ()
    joined = read_png(picture.path.read_bytes()).pixels
    assert joined == read_png((whole.folder / "tile_000.png").read_bytes()).pixels
    assert len({joined[k : k + 3] for k in range(0, len(joined), 3)}) > 500


def test_a_tile_that_did_not_come_is_missing_in_the_picture(tmp_path):
    results = tmp_path / "results"
    for index in (0, 1, 3):
        play("render/upper-half.jdl", 0, results / str(index), arguments=(str(index), "32x16", "2x2"))
    got = compose(results, {"picture": range(4)}, tmp_path / "out")
    assert got.picture is not None
    assert got.picture.missing == (2,)
    assert got.unheard["picture"] == 1


def test_the_renderer_refuses_a_tile_that_does_not_exist(tmp_path):
    ended = play("render/upper-half.jdl", 0, tmp_path / "job", arguments=("96",))
    assert ended.code == 1
    assert "tiles 0 to 95" in ended.err


PI = [str(one.path.relative_to(ROOT)) for one in WORKLOAD.submissions if one.composer == "pi"]


def test_pi_is_right_within_five_sigma(tmp_path):
    results = tmp_path / "results"
    samples = 100_000
    for index, name in enumerate(PI * 2):
        seed = member(name, index // len(PI)).arguments[0]
        ended = play(name, 0, results / str(index), arguments=(seed, str(samples)))
        assert ended.code == 0
    got = compose(results, {"pi": range(2 * len(PI))}, tmp_path / "out").pi
    assert got is not None
    assert (got.parts, got.samples) == (2 * len(PI), 2 * len(PI) * samples)
    assert got.error == pytest.approx(sqrt(pi * (4 - pi) / got.samples), rel=0.05)
    assert abs(got.value - pi) < 5 * got.error


def test_a_full_sized_part_of_pi_is_right_and_short(tmp_path):
    ended = play(PI[0], 0, tmp_path / "job")
    part = json.loads((ended.folder / "pi.json").read_text())
    assert part["samples"] >= 10**6
    assert abs(4 * part["hits"] / part["samples"] - pi) < 5 * sqrt(pi * (4 - pi) / part["samples"])
    assert ended.cpu_seconds < 10


def test_no_two_jobs_of_the_workload_use_the_same_seed():
    seeds = [member(name, k).arguments[0] for name in PI for k in range(submission(name).jobs)]
    assert len(set(seeds)) == len(seeds) >= 60


def test_the_estimate_is_reproducible_and_refuses_no_samples(tmp_path):
    first, second = (play(PI[0], 0, tmp_path / name, arguments=("5", "1000")) for name in "ab")
    assert (first.folder / "pi.json").read_bytes() == (second.folder / "pi.json").read_bytes()
    none = play(PI[0], 0, tmp_path / "none", arguments=("5", "0"))
    assert none.code == 1
    assert "at least one sample" in none.err


def test_all_pieces_together_have_exactly_the_words_of_the_text(tmp_path):
    results = tmp_path / "results"
    names = [str(one.path.relative_to(ROOT)) for one in WORKLOAD.submissions if one.composer == "words"]
    jobs = [(name, k) for name in names for k in range(submission(name).jobs)]
    for job, (name, index) in enumerate(jobs):
        assert play(name, index, results / str(job)).code == 0
    table = compose_words(results, len(jobs)).words
    text = Path("/usr/share/common-licenses/GPL-3").read_text(encoding="utf-8")
    reference = Counter(re.findall("[a-z]+", text.lower()))
    assert table is not None
    assert dict(table.counts) == dict(reference)
    assert (table.missing, table.counts[0][0]) == ((), "the")


@pytest.mark.parametrize("pieces", [1, 3, 5, 8])
def test_odd_texts_are_cut_and_counted_right(pieces, tmp_path):
    text = "One, two -- two\n\nthree's THREE\tthree\n4 four4four\nlast line without end"
    odd = tmp_path / "odd, of text"
    odd.write_text(text)
    results = tmp_path / "results"
    for k in range(pieces):
        arguments = (str(odd), str(k), str(pieces))
        assert play("words/words.jdl", 0, results / str(k), arguments=arguments).code == 0
    table = compose_words(results, pieces).words
    assert table is not None
    assert (table.text, table.missing) == ("odd, of text", ())
    assert dict(table.counts) == dict(Counter(re.findall("[a-z]+", text.lower())))


@pytest.mark.parametrize("arguments", [(), ("no-such-text", "0", "1"), ("GPL-3", "0")])
def test_the_counter_says_how_it_is_called(arguments, tmp_path):
    ended = play("words/words.jdl", 0, tmp_path / "job", arguments=arguments)
    assert ended.code == 2
    assert ended.err.startswith("usage: count_words.sh")


@pytest.mark.parametrize("index", [0, 1, 2])
def test_reconstruct_fails_by_its_exit_code_and_says_why(index, tmp_path):
    ended = play("failing/reconstruct.jdl", index, tmp_path / "job")
    assert ended.code == 3
    run = member("failing/reconstruct.jdl", index).arguments[0]
    assert f"no conditions for run {run}" in ended.err
    assert ended.out


def test_align_fails_with_a_traceback(tmp_path):
    ended = play("failing/align.jdl", 0, tmp_path / "job")
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.err


def test_crash_dies_by_a_signal_and_leaves_no_core(tmp_path):
    ended = play("failing/crash.jdl", 0, tmp_path / "job")
    assert ended.code == -signal.SIGSEGV
    assert [path.name for path in ended.folder.iterdir()] == ["crash.py"]


def test_minimise_needs_far_more_cpu_time_than_it_asks_for(tmp_path):
    spec = member("failing/over-cpu-time.jdl", 0)
    assert float(spec.arguments[0]) > 10 * spec.norm_cpu_seconds
    ended = play("failing/over-cpu-time.jdl", 0, tmp_path / "job", arguments=("0.2",))
    assert ended.code == 0
    assert ended.cpu_seconds >= 0.2
    assert "gave up" in ended.out


@pytest.mark.parametrize("program", sorted(ROOT.rglob("*.py")), ids=lambda path: path.name)
def test_every_program_is_python_3_9_with_its_standard_library_only(program):
    tree = ast.parse(program.read_text(), feature_version=(3, 9))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
