"""What the Python API says of what it submits: notices of the server, and of files that stay behind."""

import warnings

import pytest
from tests.unit.cli.test_cli_submit import accepting, sent

from lodesman import Client, SubmissionWarning

__all__ = ["accepting"]
ODD = {"attribute": "Foo", "message": "Foo is not an attribute that the program knows; it is kept."}


@pytest.fixture
def client(accepting):
    with Client(accepting.url, token="token-of-ann") as made:
        yield made


def test_what_the_server_says_is_a_warning_at_the_line_of_the_user_and_stays_with_the_jobs(client, accepting):
    accepting.state["notices"] = [ODD, ODD]
    with pytest.warns(SubmissionWarning) as said:
        jobs = client.submit({"Executable": "/bin/true", "Foo": 1})
    assert [(str(one.message), one.filename) for one in said] == [(ODD["message"], __file__)]
    assert jobs.notices == (ODD["message"],) * 2
    with pytest.warns(SubmissionWarning, match="Foo") as said:
        client.submit(max, 1, 2)
    assert said[0].filename == __file__


def test_warnings_that_are_errors_say_what_was_submitted(client, accepting):
    accepting.state["notices"] = [ODD]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SubmissionWarning) as raised:
            client.submit(["/bin/true"])
    assert raised.value.__notes__ == ["They are submitted: <1 job 12>"]
    assert len(sent(accepting)) == 1


def test_nothing_odd_is_no_warning(client, accepting):
    assert client.submit(["/bin/true"]).notices == ()  # a warning would be an error


def test_files_that_stay_behind_and_lines_that_are_not_read_are_said(client, accepting, home):
    (home / "job.sh").write_text("#!/bin/sh\n#SBATCH --mem=4G\ntrue\n")
    with pytest.warns(SubmissionWarning, match=r"Executable is job.sh, a command of the node"):
        client.submit({"Executable": "job.sh"})
    with pytest.warns(SubmissionWarning, match=r"job.sh: its lines of batch systems are not read here"):
        client.using(files="job.sh").submit(["./job.sh"])
    with pytest.warns(SubmissionWarning, match="lines of batch systems"):
        client.using(files="job.sh").submit(["/bin/sh", "job.sh"])
