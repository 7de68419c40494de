"""The Python API against a real server with real pilots: commands, descriptions, functions, and what goes wrong."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from concurrent.futures import CancelledError, as_completed
from pathlib import Path

import pytest

import lodesman
import lodesman.testing
from lodesman import AsyncClient, Client, JobFailed
from lodesman.base.errors import Forbidden, InvalidJob, InvalidRequest, NotFound
from lodesman.user.python.functions import RemoteTraceback
from lodesman.wire import calls
from lodesman.wire.accounts import USER_SCOPES, AccountBody, TokenBody

PATIENCE = 120.0
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def here():
    with lodesman.testing.server() as found:
        yield found


@pytest.fixture
def client(here):
    with here.client() as made:
        yield made


def square(number: int, plus: int = 0) -> int:
    sys.stdout.write(f"squaring {number}\n")
    return number * number + plus


def divide(number: int) -> float:
    return 1 / number


def test_a_command_with_files_there_and_back(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("6 7")
    job = client.using(files="data.txt", keep=["out.txt"], cpu_time="1h", name="product").submit(
        ["/bin/sh", "-c", "read a b <data.txt; echo $((a * b)) | tee out.txt"]
    )[0]
    assert job.wait(PATIENCE)
    assert (job.state, job.status().name, job.result()) == ("Done", "product", None)
    assert job.logs() == "42\n"
    assert (job.output(tmp_path / "results") / "out.txt").read_text() == "42\n"
    with pytest.raises(FileExistsError):
        job.output(tmp_path / "results")


@pytest.mark.parametrize("kind", ["text", "path", "dict"])
def test_a_description_is_a_text_a_file_or_a_dict(client, tmp_path, kind):
    text = (
        '[ Executable = "/bin/echo"; Arguments = {"%s"}; Parameters = 3; ParameterStep = 1; CPUTime = 60; ]'
    )
    (tmp_path / "three.jdl").write_text(text)
    record = {
        "Executable": "/bin/echo",
        "Arguments": ["%s"],
        "Parameters": 3,
        "ParameterStep": 1,
        "CPUTime": 60,
    }
    jobs = client.submit({"text": text, "path": tmp_path / "three.jdl", "dict": record}[kind])
    assert jobs.wait(PATIENCE)
    assert [job.logs() for job in jobs] == ["1\n", "2\n", "3\n"]
    assert jobs.states() == {"Done": 3}
    assert "3 Done" in jobs._repr_html_()
    assert len(jobs[1:]) == 2


def test_a_function_returns_and_its_output_is_kept(client):
    job = client.submit(square, 6, plus=6)
    assert job.result(PATIENCE) == 42
    assert job.logs() == "squaring 6\n"
    assert "Done" in job._repr_html_()


def test_what_a_function_raises_is_raised_here(client):
    job = client.submit(divide, 0)
    with pytest.raises(ZeroDivisionError) as raised:
        job.result(PATIENCE)
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert "in divide" in str(raised.value.__cause__)
    assert job.state == "Failed"


def test_a_map_is_one_submission_in_order(client):
    jobs = client.using(cpu_time="10m").map(square, range(20), [1] * 20)
    assert jobs[0].status().submission == jobs[19].status().submission
    assert sorted(job.id for job in client.as_completed(jobs, PATIENCE)) == list(jobs.ids)
    assert list(jobs.results(PATIENCE)) == [one * one + 1 for one in range(20)]


def test_a_command_that_fails_says_how(client):
    job = client.submit(["/bin/sh", "-c", "echo oops >&2; exit 3"])[0]
    with pytest.raises(JobFailed) as raised:
        job.result(PATIENCE)
    assert raised.value.data == {
        "job": job.id,
        "state": "Failed",
        "cause": "exit",
        "exit_code": 3,
        "signal": None,
    }
    assert "exit code 3" in str(raised.value)


def test_waiting_has_an_end_and_jobs_can_be_killed(client):
    job = client.submit(["/bin/sleep", "600"])[0]
    assert not job.wait(0.5)
    with pytest.raises(TimeoutError):
        job.result(0)
    assert job.cancel("enough")
    assert job.wait(PATIENCE)
    assert not job.cancel()
    with pytest.raises(JobFailed):
        job.result()


def test_why_a_job_waits(client):
    asking = client.using(hold_if_impossible=True, Requirements={"Memory": 10**8})
    job = asking.submit(["/bin/true"])[0]
    assert (job.state, job.why().verdict) == ("Held", "never")
    with pytest.raises(
        InvalidJob, match=r"Unable to change job: No job class or job class variant \"none-such\""
    ):
        job.change(JobClass="none-such")
    assert job.change(Requirements=None, JobName="small")
    assert job.wait(PATIENCE)
    assert not job.change(JobName="late")
    assert job.status().name == "small"


def test_jobs_are_found_again_by_another_program(here, client):
    made = client.using(name="found again").map(abs, [-1, -2, -3])
    made.wait()
    with here.client() as later:
        (submission,) = {job.status().submission for job in made}
        by_ids = f"{made[0].id}-{made[1].id},{made[2].id}"
        for jobs in (
            later.jobs(by_ids), later.jobs(name="found ag?in*"), later.jobs(submission=submission, state="Done,Failed"),
        ):  # fmt: skip
            assert [job.id for job in jobs] == [job.id for job in made]
            assert list(jobs.results()) == [1, 2, 3]
        assert set(made.ids) <= set(later.jobs().ids)
        apart = later.jobs(f"{made[2].id},{made[0].id}")
        ids = f"{made[0].id}, {made[2].id}"
        assert (list(apart.results()), repr(apart)) == ([1, 3], f"<2 jobs {ids}>")
        assert later.jobs(by_ids, state="Held").ids == []
        assert later.jobs(submission=submission, where={"JobName": "found again", "Tag": []}).ids == list(
            made.ids
        )
        assert later.jobs(submission=submission, where={"NumberOfProcessors": 2, "Exclusive": True}).ids == []
        assert (repr(later.jobs(name="none is called so")), repr(made[:1])) == (
            "<no jobs>",
            f"<1 job {made[0].id}>",
        )
        assert asyncio.run(found_later(here, "found again")) == list(made.ids)


async def found_later(here, name):
    async with AsyncClient(here.url, token=here.token) as lode:
        return list((await lode.jobs(name=name)).ids)


@pytest.mark.parametrize("wrong", ["503-522", "7", 7.0, None, 0, -1, True])
def test_what_is_no_id_is_refused_at_once(client, wrong):
    with pytest.raises(InvalidRequest, match="is not the id of a job"):
        client.job(wrong)
    with pytest.raises(InvalidRequest, match="'all' is not a job"):
        client.jobs("5,all")
    with pytest.raises(NotFound):
        client.jobs(10**12)
    for empty in ({"name": ""}, {"job_group": ""}, {"submission": 0}):
        with pytest.raises(InvalidRequest, match="is empty"):
            client.jobs(**empty)


def test_what_is_no_job_is_refused_before_it_is_sent(client):
    for wrong, words in (
        (7, "A int is no job"),
        ([], "A list is no job"),
        (
            "echo hi",
            "echo hi cannot be read: No such file or directory. A text names a description; a command is a list",
        ),
        ("/bin/true", "not UTF-8.* a command is a list of words"),
        ({"Executable": "/bin/true", "Memory": "much"}, "Memory"),
    ):
        with pytest.raises(lodesman.base.errors.LodesmanError, match=words):
            client.submit(wrong)
    with pytest.raises(lodesman.base.errors.LodesmanError, match="AtMost is too small"):
        client.using(at_most=0).map(square, [1, 2])
    with pytest.raises(InvalidRequest, match="no option 'core'"):
        client.using(core=2)
    with pytest.raises(InvalidRequest, match="cannot travel"):
        client.submit(square, threading.Lock())
    with pytest.raises(InvalidRequest, match="no items"):
        client.map(square, [])
    with pytest.raises(InvalidRequest, match=r"map takes no 'cpu_time'.*client.using\(cpu_time=...\).map"):
        client.map(square, [1], cpu_time="10m")  # type: ignore[arg-type]  # and a checker of types says so
    with pytest.raises(NotFound):
        client.job(10**9).status()


def test_an_executor_of_futures(client):
    with client.using(cpu_time="10m").executor() as executor:
        futures = [executor.submit(square, one) for one in range(3)]
        futures.append(executor.submit(divide, 0))
        assert set(as_completed(futures, PATIENCE)) == set(futures)
        assert [one.result() for one in futures[:3]] == [0, 1, 4]
        assert isinstance(futures[3].exception(), ZeroDivisionError)
        assert list(executor.map(square, [4, 5])) == [16, 25]
    with pytest.raises(RuntimeError):
        executor.submit(square, 1)


def test_a_future_that_is_cancelled_kills_its_job(client):
    with client.executor() as executor:
        slow = executor.submit(time.sleep, 600)
        assert slow.cancel()
        with pytest.raises(CancelledError):
            slow.result()
        assert slow.job.wait(PATIENCE)
        assert slow.job.state == "Killed"


def test_coroutines_wait_side_by_side(here):
    async def run() -> list[int]:
        async with here.async_client() as client:
            assert isinstance(client, AsyncClient)
            jobs = await client.using(cpu_time="10m").map(square, range(5))
            other = await client.submit(square, 9)
            found = await asyncio.wait_for(
                asyncio.gather(*(client.result(job) for job in [*jobs, other])), PATIENCE
            )
            ended = [job.id async for job in client.as_completed(jobs)]
            assert sorted(ended) == list(jobs.ids)
            with pytest.raises(ZeroDivisionError):
                await client.result(await client.submit(divide, 0))
            assert (await client.states(jobs)) == {"Done": 5}
            return found

    assert asyncio.run(run()) == [0, 1, 4, 9, 16, 81]


def test_threads_share_a_client(client):
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda one=one: found.append(client.submit(square, one).result(PATIENCE)))
        for one in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == [0, 1, 4, 9]


def test_it_is_loaded_only_when_it_is_used():
    assert lodesman.Client is Client
    assert lodesman.JobState.DONE == "Done"
    with pytest.raises(AttributeError):
        lodesman.nothing  # noqa: B018
    assert (Path(lodesman.__file__).parent / "py.typed").exists()


# What reading it as a pickle would do.
HOSTILE = "cos\nsystem\n(S'touch {}'\ntR."


def test_no_file_of_a_command_is_carried_out_as_a_result(client, tmp_path):
    line = f"cat >result.pkl <<'.'\n{HOSTILE.format(tmp_path / 'carried-out')}\n.\n"
    job = client.using(keep=["result.pkl"]).submit(["/bin/sh", "-c", line])[0]
    assert client.job(job.id).result(PATIENCE) is None
    assert not (tmp_path / "carried-out").exists()


def test_the_result_of_another_user_s_function_is_not_read(here, client):
    ours = client.submit(square, 3)
    assert client.job(ours.id).result(PATIENCE) == 9
    admin = client.core.caller
    me = admin.call(calls.ME)
    admin.call(calls.ADD_USER, body=AccountBody("eve", me.vo, me.groups, admin=True))
    token = admin.call(calls.ISSUE_TOKEN, body=TokenBody("eve", scopes=[*USER_SCOPES, "admin"])).token
    with Client(here.url, token=token) as theirs:
        with pytest.raises(Forbidden, match=f"Job {ours.id} belongs to .*lode output {ours.id}"):
            theirs.job(ours.id).result(PATIENCE)
        assert theirs.job(theirs.submit(square, 4).id).result(PATIENCE) == 16
