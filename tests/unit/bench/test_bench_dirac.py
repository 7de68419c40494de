"""DIRAC's side of the peer row: its harness is run beside nothing, and its report is read or refused."""

import json

import pytest
from bench import dirac
from bench.context import Context
from bench.dirac import measure, read_report
from bench.rows import peer

HARNESS = """#!/bin/sh
echo "$0 $*" >> calls
case "$1" in start) touch up;; stop) rm -f up;; esac
"""
RUN = """#!/bin/sh
echo "run $*" >> calls
test -e up || { echo "no server" >&2; exit 3; }
for word; do last=$word; done
cp report.json "$last"
"""
REPORT = {
    "params": {"jobs": 60, "requirement_sets": 6},
    "match_1p": {"match": {"matches_per_s": 70.5}},
    "match_4p": {"match": {"matches_per_s": 150.0}},
    "match_8p": {"match": {"matches_per_s": 149.0}},
    "insert_1p": {"insert": {}},
}


@pytest.fixture
def harness(tmp_path):
    folder = tmp_path / "harness"
    (folder / "venv/bin").mkdir(parents=True)
    for name, text in (("servers.sh", HARNESS), ("venv/bin/python", RUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "report.json").write_text(json.dumps(REPORT))
    return folder


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def test_the_best_of_the_peer_counts():
    found = read_report(REPORT, same_run=True)
    assert found.rates == {1: 70.5, 4: 150.0, 8: 149.0}
    assert found.best == (4, 150.0)
    assert (found.jobs, found.queues, found.same_run) == (60, 6, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"match_1p": {}}, "lacks 'match'"),
        ({"params": {}}, "lacks 'jobs'"),
    ],
)
def test_a_report_that_lacks_something_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        read_report({**REPORT, **change}, same_run=True)


def test_a_report_without_one_process_is_refused():
    with pytest.raises(ValueError, match="match_1p"):
        read_report({name: value for name, value in REPORT.items() if name != "match_1p"}, same_run=False)


def test_the_harness_is_run_and_its_server_stopped(harness, tmp_path):
    found = measure(harness, tmp_path, part=1)
    assert found.same_run
    start, run, stop = calls(harness)
    assert (start, stop) == ("./servers.sh start", "./servers.sh stop")
    assert run.startswith(
        "run bench_match.py run --jobs 100000 --tqs 10000 --procs 1,4,8 --seconds 20 --out "
    )
    assert not (harness / "up").exists()


def test_in_a_hurry_the_peer_measures_little(harness, tmp_path):
    measure(harness, tmp_path, part=10)
    assert "--jobs 10000 --tqs 1000" in calls(harness)[1]


def test_a_harness_that_fails_is_reported_and_its_server_stopped(harness, tmp_path):
    (harness / "servers.sh").write_text('#!/bin/sh\necho "$0 $*" >> calls\n')
    with pytest.raises(ValueError, match=r"bench_match.py .* ended with 3: no server"):
        measure(harness, tmp_path, part=10)
    assert calls(harness)[-1] == "./servers.sh stop"


def test_a_report_from_before_is_no_measurement_of_the_same_run(harness, tmp_path):
    assert not measure(harness / "report.json", tmp_path, part=1).same_run


@pytest.fixture
def context(tmp_path):
    class Floors:
        sqlite_commits = 1_000.0

    return Context(home=tmp_path, part=1, samples=1, floors=Floors(), say=lambda text: None)


@pytest.mark.slow
def test_the_row_holds_both_sides_against_each_other(context, harness, monkeypatch):
    monkeypatch.setattr(peer, "PILOTS", 5)
    monkeypatch.setattr(peer, "CHECKED", 2)
    context.dirac = harness
    many, one = peer.measure(context)
    assert many.row == "peer-256"
    assert many.target == 100
    assert many.value == pytest.approx(many.details["rate"] / 150.0)
    assert "against 4 processes of DIRAC (150/s, in the same run)" in many.what
    assert one.target is None
    assert one.value == pytest.approx(one.details["rate"] / 70.5)


@pytest.mark.slow
def test_without_the_peer_only_our_side_is_measured(context, monkeypatch):
    monkeypatch.setattr(peer, "PILOTS", 5)
    monkeypatch.setattr(peer, "CHECKED", 2)
    monkeypatch.setattr(dirac, "JOBS", 60)
    monkeypatch.setattr(dirac, "QUEUES", 6)
    figures = peer.measure(context)
    assert [(figure.unit, figure.target) for figure in figures] == [("/s", None)] * 2
    assert all(figure.details["checked"] == 2 for figure in figures)
