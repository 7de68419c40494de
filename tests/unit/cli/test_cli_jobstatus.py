"""`lode jobstatus`, and the same program in one file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from lodesman.server.engines.zipapp import build_zipapp
from lodesman.site.jobstatus.__main__ import main
from lodesman.site.jobstatus.channel import Publication
from lodesman.site.jobstatus.commands import EXIT_CODES
from lodesman.site.jobstatus.values import Status
from lodesman.user.cli.root import main as lode

NOW = 1_391_212_345


@pytest.fixture
def directory(tmp_path):
    publication = Publication(tmp_path)
    assert publication.publish(Status(used_cpu=6, last_job_start=NOW - 9_000, add_uncom_time=100))
    publication.close()
    for file in tmp_path.iterdir():
        os.utime(file, (NOW, NOW))
    return tmp_path


@pytest.mark.slow
def test_lode_hands_its_words_on(directory, capsys):
    words = ["show", str(directory), "--now", str(NOW), "--json"]
    assert lode(["jobstatus", *words]) == 0
    ours = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == ours
    assert lode(["jobstatus", "check", str(directory / "none")]) == 3
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        lode(["jobstatus", "show", "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert "usage: lode jobstatus show" in said
    assert EXIT_CODES in said


@pytest.mark.slow
def test_the_program_is_one_file_that_can_be_copied(directory, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    first, second, other = folder / "first.pyz", folder / "second.pyz", folder / "other"
    assert lode(["jobstatus", "package", str(first)]) == 0
    build_zipapp(other, "jobstatus")
    for words in ([first, "package", second], [second, "show", directory, "--now", str(NOW)]):
        done = subprocess.run(
            [sys.executable, "-I", "-W", "error", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert first.read_bytes() == second.read_bytes() == other.read_bytes()
    assert stat.S_IMODE(second.stat().st_mode) == 0o755
    assert "kill waste               15.03 core-hours" in done.stdout
