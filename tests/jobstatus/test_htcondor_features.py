"""What the STARTD_CRON script that sites install makes of the list of slots: the Job Features of each job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "jobstatus" / "htcondor" / "startd-cron"


@pytest.fixture
def node(tmp_path):
    """Runs the script with these slots; returns what it prints."""
    for name in ("bin", "features", "jobstatus"):
        (tmp_path / name).mkdir()
    asked = tmp_path / "bin" / "condor_status"
    asked.write_text(f"#!/bin/sh\ncat {tmp_path}/slots\n")
    asked.chmod(0o755)

    def runs(*slots: str) -> str:
        (tmp_path / "slots").write_text("".join(f"{one}\n" for one in slots))
        found = {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "JOBSTATUS_PROGRAM": "/bin/false",
            "JOBFEATURES_PARENT": str(tmp_path / "features"), "JOBSTATUS_PARENT": str(tmp_path / "jobstatus"),
        }  # fmt: skip
        done = subprocess.run([sys.executable, SCRIPT], env=found, capture_output=True, text=True, check=True)
        return done.stdout

    return runs


def features(folder: Path) -> dict[str, dict[str, str]]:
    places = {one.name: one for one in (folder / "features").iterdir()}
    return {name: {file.name: file.read_text() for file in one.iterdir()} for name, one in places.items()}


def test_each_job_has_its_cores_and_its_start(node, tmp_path):
    node("12.3 4 1000", "12.4 1 2000")
    assert features(tmp_path) == {
        "12.3": {"allocated_cpu": "4\n", "allocated_CPU": "4\n", "jobstart_secs": "1000\n"},
        "12.4": {"allocated_cpu": "1\n", "allocated_CPU": "1\n", "jobstart_secs": "2000\n"},
    }
    place = tmp_path / "features" / "12.3"
    assert (place.stat().st_mode & 0o777, (place / "jobstart_secs").stat().st_mode & 0o777) == (0o755, 0o644)


@pytest.mark.slow
def test_a_drain_holds_until_the_job_begins_anew(node, tmp_path):
    node("12.3 4 1000")
    drain = tmp_path / "features" / "12.3" / "shutdowntime_job"
    drain.write_text("5000\n")
    node()
    node("12.3 4 1000")
    assert drain.exists()
    node("12.3 4 3000")
    assert features(tmp_path)["12.3"] == {
        "allocated_cpu": "4\n",
        "allocated_CPU": "4\n",
        "jobstart_secs": "3000\n",
    }


@pytest.mark.slow
def test_jobs_that_were_not_seen_for_an_hour_are_gone(node, tmp_path):
    node("12.3 4 1000", "12.4 1 2000")
    for job in ("12.3", "12.4"):
        os.utime(tmp_path / "features" / job, (1, 1))
    node("12.4 1 2000")
    assert set(features(tmp_path)) == {"12.4"}


def test_without_a_place_for_them_the_ads_are_printed_all_the_same(node, tmp_path):
    (tmp_path / "features").rmdir()
    assert "JobStatusKillWaste = undefined" in node("12.3 4 1000")
    assert not (tmp_path / "features").exists()
