"""Scripts that hang, die, complain, change or flood: one refusal each, no job lost, and the next job finds a worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kits.jsv_kit import ACCOUNT, JOB, ROOT, SERVER_JOB, one, public_folder, python, table, write_script

from lodesman.base.errors import Forbidden, InvalidConfig, InvalidJob, Unavailable
from lodesman.server.jsv import (
    OWN_LIBRARIES,
    JsvContext,
    JsvPool,
    JsvUrl,
    JsvVerdict,
    ScriptLimits,
    ScriptSettings,
    check_modification,
    parse_url,
    verify_at_client,
)
from lodesman.server.jsv.process import account_of
from lodesman.server.jsv.runner import ScriptWorker

ACCEPT = python('say("RESULT STATE ACCEPT")')
# What a long-lived process is known by.
WHO = python('say(f"RESULT STATE REJECT {os.getpid()}")')
# For scripts that hang; a script that does not may take longer to start than this on a busy machine.
QUICK = ScriptSettings(time_out_seconds=1.0, quit_seconds=0.3)
SERVER = ScriptSettings(time_out_seconds=30.0, quit_seconds=5.0, account=ACCOUNT)


@pytest.fixture
def folder():
    with public_folder() as found:
        yield found


@pytest.fixture
def script(folder):
    def write(text: str, name: str = "script") -> JsvUrl:
        return write_script(folder / name, text)

    return write


@pytest.fixture
def pool_of():
    pools = []

    def make(url: JsvUrl, settings: ScriptSettings = SERVER, **more) -> JsvPool:
        pools.append(JsvPool(url, settings, **more))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


# --- the rows of the table of results ---


def j1(script, pool_of):
    found = one(script(ACCEPT))
    assert (found.verdict, found.parameters) == (JsvVerdict.ACCEPTED, JOB)


def j2(script, pool_of):
    found = one(script(python('say("PARAM N new")\nsay("RESULT STATE CORRECT")')))
    assert (found.verdict, found.parameters.values["N"]) == (JsvVerdict.CORRECTED, "new")


def j3(script, pool_of):
    assert one(script(python('say("RESULT STATE REJECT no")'))).message == "no"
    assert one(script(python('say("RESULT STATE REJECT")'))).message == "JSV rejected job"


def j4(script, pool_of):
    url = script(python('say("PARAM N new")\nsay("RESULT STATE ACCEPT")'))
    assert one(url).parameters.values["N"] == "new"
    assert one(url, settings=ScriptSettings(strict_accept=True)).parameters == JOB


def j5(script, pool_of):
    found = one(script(python('say("RESULT STATE REJECT_WAIT")')))
    assert (found.verdict, found.message) == (JsvVerdict.REJECTED_FOR_NOW, "JSV temporarily rejected job")


def j6(script, pool_of):
    verify = 'if params["N"] == "bad":\n  print("oh", "no", file=sys.stderr, flush=True)\n'
    verify += 'say(f"RESULT STATE CORRECT {os.getpid()}")'
    pool = pool_of(script(python(verify)), workers=1)
    first = pool.verify(SERVER_JOB)
    refused = pool.verify(replace(SERVER_JOB, values={"N": "bad"}))
    assert (refused.message, refused.restart) == ("JSV stderr: oh no", True)
    assert not alive(int(first.message))
    assert pool.verify(SERVER_JOB).message != first.message


def j7(script, pool_of):
    url = script(python("time.sleep(60)"))
    found = one(url, settings=QUICK)
    assert found.message == f'got no response from JSV script "{url.path}"'
    assert 2 * QUICK.time_out_seconds <= found.seconds < 60
    # A script that ends is not waited for.
    found = one(url := script(python("sys.exit(0)")), settings=ScriptSettings(time_out_seconds=300.0))
    assert (found.message, found.seconds < 300) == (f'got no response from JSV script "{url.path}"', True)


def j8(script, pool_of):
    assert ScriptSettings().time_out_seconds == 10.0
    # The time starts anew with each line.
    lines = "for n in range(6):\n  time.sleep(0.9)\n  say(f'LOG INFO {n}')\nsay('RESULT STATE ACCEPT')"
    found = one(script(python(lines)), settings=replace(QUICK, time_out_seconds=5.0))
    assert found.accepted
    assert found.seconds > 5.0
    assert len(found.log) == 6


def j9(script, pool_of):
    url = script(ACCEPT)
    assert ScriptSettings().threshold_ms == 5_000
    assert one(url).notes == ()
    (note,) = one(url, settings=ScriptSettings(threshold_ms=0)).notes
    assert note.startswith(f'JSV "{url.path}" took ')
    (note,) = one(
        script(python('time.sleep(0.1)\nsay("RESULT STATE ACCEPT")')),
        settings=ScriptSettings(threshold_ms=99),
    ).notes
    assert note.endswith("jsv_threshold is 99 ms.")


def j10(script, pool_of):
    # It does not react to SIGTERM, and has a child that holds its pipes open.
    start = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nchild = os.fork()\nif not child:\n  time.sleep(600)"
    )
    verify = (
        'open(f"{os.path.dirname(__file__)}/pids", "a").write(f"{os.getpid()} {child} ")\ntime.sleep(600)'
    )
    url = script(python(verify, start=start))
    pids = Path(url.path).parent / "pids"
    found = one(url, settings=QUICK)
    assert found.seconds < 600
    all_of_them = pids.read_text().split()
    assert len(all_of_them) == 4
    wait_until(lambda: not any(alive(int(pid)) for pid in all_of_them))


def j11(script, pool_of):
    for line in ("RESULT", "RESULT ACCEPT", "RESULT STATE MAYBE"):
        found = one(script(python(f'say("{line}")')))
        assert (found.verdict, found.restart) == (JsvVerdict.REJECTED, True)


def j12(script, pool_of):
    """Whoever gives ids out uses one up; the script sees it."""
    found = pool_of(script(python('say("RESULT STATE REJECT " + params["JOB_ID"])'))).verify(SERVER_JOB)
    assert found.message == "7"


def j13(script, pool_of):
    """While one job is verified, others go on."""
    url = script(python('while params["N"] == "slow" and not os.path.exists(params["cwd"]):\n  time.sleep(0.01)\n'
                        'say("RESULT STATE ACCEPT")'))  # fmt: skip
    pool = pool_of(url)
    gate = Path(url.path).parent / "gate"
    slow = replace(SERVER_JOB, values={"N": "slow", "cwd": str(gate)})
    found = []
    thread = threading.Thread(target=lambda: found.append(pool.verify(slow)))
    thread.start()
    try:
        for _ in range(5):
            assert pool.verify(SERVER_JOB).accepted
        assert found == []
    finally:
        gate.touch()
        thread.join()
    assert found[0].accepted


def j14(script, pool_of):
    with pytest.raises(
        Forbidden, match="rejected due to jsv_allowed_mod configuration which does not allow: l_hard"
    ):
        check_modification(["N", "l_hard"])


RESULTS = {
    function.__name__.upper(): function
    for function in (j1, j2, j3, j4, j5, j6, j7, j8, j9, j10, j11, j12, j13, j14)
}


@pytest.mark.parametrize("row", [row[0] for row in table("jsv-results.md")])
def test_rows_of_the_results(row, script, pool_of):
    RESULTS[row](script, pool_of)


# --- one refusal each, and the worker is replaced ---

BAD = {
    "hang": ("time.sleep(600)", "got no response"),
    "death": ("os._exit(1)", "got no response"),
    "signal": ("os.kill(os.getpid(), 9)", "got no response"),
    "stderr": ("os.write(2, b'x\\\\n')", "JSV stderr: x"),
    "stderr without end": ("while True: os.write(2, b'x'); time.sleep(0.01)", "JSV stderr: xx"),
    "traceback": ("raise ValueError('no such thing')", "ValueError: no such thing"),
    "unknown command": ("say('HELLO')", 'unknown command from JSV: "HELLO"'),
    "error": ("say('ERROR out of order')", "out of order"),
    "read-only": ("say('PARAM USER root')", 'read-only parameter "USER"'),
    "closed": ("os.close(1); time.sleep(600)", "got no response"),
    "binary": ("os.write(1, bytes(range(128, 255)) + b'\\\\n')", "unknown command"),
}


WAITS = {"hang", "closed"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in WAITS)) for kind in BAD]
)
def test_a_bad_script_refuses_one_job(kind, script, pool_of):
    act, message = BAD[kind]
    settings = replace(SERVER, time_out_seconds=5.0) if kind in WAITS else SERVER
    url = script(python(f'if params["N"] == "bad":\n  {act}\nsay("RESULT STATE ACCEPT")'))
    pool = pool_of(url, settings, workers=1)
    bad = replace(SERVER_JOB, values={"N": "bad"})
    found = [pool.verify(job) for job in (SERVER_JOB, bad, SERVER_JOB, bad, SERVER_JOB)]
    assert [one.accepted for one in found] == [True, False, True, False, True]
    assert message in found[1].message
    assert found[1].restart


def test_kill_nine_in_the_middle_loses_nothing(script, pool_of):
    gate = "f'{os.path.dirname(__file__)}/gate'"
    url = script(python(
        f"if not os.path.exists({gate}):\n  open({gate}, 'w').write(str(os.getpid()))\n  time.sleep(600)\n"
        "say(f'RESULT STATE CORRECT {os.getpid()}')"
    ))  # fmt: skip
    Path(url.path).parent.chmod(0o777)
    pool = pool_of(url, workers=1)
    file = Path(url.path).parent / "gate"
    found = []
    thread = threading.Thread(target=lambda: found.append(pool.verify(SERVER_JOB)))
    thread.start()
    wait_until(lambda: file.exists() and bool(file.read_text()))
    killed = int(file.read_text())
    os.kill(killed, signal.SIGKILL)
    thread.join()
    assert found[0].verdict is JsvVerdict.CORRECTED
    assert found[0].message != str(killed)


def test_a_worker_that_dies_while_idle_is_replaced(script, pool_of):
    pool = pool_of(script(WHO), workers=1)
    first = int(pool.verify(SERVER_JOB).message)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first))
    found = pool.verify(SERVER_JOB)
    assert int(found.message) != first
    assert "ended or spoke between two jobs" in found.notes[0]


def test_a_process_lives_long_and_starts_when_it_is_needed(script, pool_of):
    pool = pool_of(script(WHO))
    assert len({pool.verify(SERVER_JOB).message for _ in range(20)}) == 1


def test_two_workers_at_the_same_time(script, pool_of):
    start = "count = 0"
    verify = "count += 1\nsay('PARAM P ' + params['N'])\nsay(f'RESULT STATE CORRECT {os.getpid()}')"
    pool = pool_of(script(python(verify, start=start)))
    found: dict[int, list] = {number: [] for number in range(8)}

    def ask(number: int) -> None:
        for turn in range(25):
            job = replace(SERVER_JOB, values={"N": f"{number}-{turn}"})
            found[number].append(pool.verify(job))

    threads = [threading.Thread(target=ask, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, outcomes in found.items():
        assert [one.parameters.values["P"] for one in outcomes] == [f"{number}-{turn}" for turn in range(25)]
    assert 1 <= len({one.message for outcomes in found.values() for one in outcomes}) <= 2


def test_a_changed_file_is_noticed(script, pool_of):
    pool = pool_of(script(python('say("RESULT STATE REJECT old")')), workers=1)
    assert pool.verify(SERVER_JOB).message == "old"
    url = script(python('say("RESULT STATE REJECT new")'))
    found = pool.verify(SERVER_JOB)
    assert found.message == "new"
    assert found.notes == (f'JSV "{url.path}" has changed: it is started anew.',)
    # In place, with another time.
    Path(url.path).write_text(python('say("RESULT STATE REJECT third")'))
    os.utime(url.path, ns=(1, 1))
    assert pool.verify(SERVER_JOB).message == "third"


def test_a_file_that_goes_refuses_until_it_is_back(script, pool_of):
    url = script(ACCEPT)
    pool = pool_of(url)
    Path(url.path).chmod(0o644)
    for _ in range(3):
        found = pool.verify(SERVER_JOB)
        words = f'JSV "{url.path}" is either not a file or not executable. Make it executable: chmod +x {url.path}'
        assert found.message == words
    Path(url.path).unlink()
    assert not pool.verify(SERVER_JOB).accepted
    script(ACCEPT)
    assert pool.verify(SERVER_JOB).accepted


def test_what_is_logged_after_a_result_does_not_disturb(script, pool_of):
    verify = "say(f'RESULT STATE REJECT {os.getpid()}')\nsay('LOG INFO late')"
    pool = pool_of(script(python(verify)), workers=1)
    assert len({pool.verify(SERVER_JOB).message for _ in range(5)}) == 1


def test_a_class_does_not_leak_into_a_job_without_one(script, pool_of):
    # A library that forgets only what it knows.
    verify = "seen = globals().setdefault('kept', {})\nseen.update({k: v for k, v in params.items() if k == 'jc'})\n"
    verify += "say('RESULT STATE REJECT ' + repr(seen.get('jc')))"
    pool = pool_of(script(python(verify)), workers=1)
    jobs = [replace(SERVER_JOB, values=values) for values in ({}, {"jc": "app"}, {}, {"jc": "b"}, {})]
    assert [pool.verify(job).message for job in jobs] == ["None", "'app'", "''", "'b'", "''"]


# --- large values, newlines ---


@pytest.mark.slow
def test_a_megabyte_passes_both_ways_and_a_flood_is_refused(script, pool_of):
    pool = pool_of(script(python('say("PARAM P " + params["ac"])\nsay("RESULT STATE ACCEPT")')))
    big = "x" * 1_000_000
    assert pool.verify(replace(SERVER_JOB, values={"ac": big})).parameters.values["P"] == big
    flood = script(python('while True:\n  os.write(1, b"x" * (1 << 20))'), "flood")
    settings = ScriptSettings(limits=ScriptLimits(memory_mb=1_024))
    assert "more than" in one(flood, settings=settings).message


def test_a_newline_is_refused_and_the_worker_goes_on(script, pool_of):
    pool = pool_of(script(WHO), workers=1)
    first = pool.verify(SERVER_JOB).message
    with pytest.raises(InvalidJob, match="The value of ac has a newline"):
        pool.verify(replace(SERVER_JOB, values={"ac": "a\nb"}))
    assert pool.verify(SERVER_JOB).message == first


# --- how a script is run ---


def test_the_environment_of_a_server_s_script_has_nothing_of_the_server(script, monkeypatch, pool_of):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    verify = "say('RESULT STATE REJECT ' + ' '.join(sorted(os.environ)))"
    names = set(pool_of(script(python(verify)), workers=1).verify(SERVER_JOB).message.split())
    assert names - {"LC_CTYPE"} == {"HOME", "LANG", "PATH", "SGE_CELL", "SGE_ROOT"}


def test_a_user_s_script_has_the_user_s_environment_but_for_the_token(script, monkeypatch):
    mine = {
        "SITE_POLICY": "strict one",
        "LOGNAME": "ann",
        "PATH": "/opt/site/bin:/usr/bin:/bin",
        "SGE_ROOT": "/opt/sge",
    }
    for name, text in {**mine, "LODE_TOKEN": "secret"}.items():
        monkeypatch.setenv(name, text)
    names = [*mine, "LODE_TOKEN", "SGE_CELL"]
    verify = f"say('RESULT STATE REJECT ' + '|'.join(os.environ.get(name, '-') for name in {names}))"
    found = one(script(python(verify)), settings=ScriptSettings(sge_cell="here")).message.split("|")
    assert found == [*list(mine.values())[:3], str(OWN_LIBRARIES), "-", "here"]


def test_a_script_has_a_session_of_its_own_and_no_other_files(script):
    verify = "own = os.getsid(0) == os.getpid() == os.getpgid(0)\n"
    verify += "say(f\"RESULT STATE REJECT {own} {len(os.listdir('/proc/self/fd'))}\")"
    # The fourth is the folder that is being listed.
    assert one(script(python(verify))).message == "True 4"


def test_a_file_without_an_interpreter_is_run_by_sh(script):
    text = 'while read -r l; do case $l in START) echo STARTED;; BEGIN) echo "RESULT STATE REJECT $0";; esac; done\n'
    url = script(text)
    assert one(url).message == url.path


def test_a_missing_interpreter_is_a_refusal(script):
    assert "cannot be started" in one(script("#!/no/such/program\n")).message


def test_limits_hold(script):
    verify = "import resource as r\n"
    verify += "n = [r.getrlimit(k)[0] for k in (r.RLIMIT_AS, r.RLIMIT_FSIZE, r.RLIMIT_CORE, r.RLIMIT_CPU)]\n"
    verify += "say('RESULT STATE REJECT ' + ' '.join(map(str, n)))"
    limits = ScriptLimits(memory_mb=512, file_size_mb=3, cpu_seconds=7)
    memory, size, core, cpu = map(
        int, one(script(python(verify)), settings=ScriptSettings(limits=limits)).message.split()
    )
    assert (memory, size, core) == (512 << 20, 3 << 20, 0)
    assert 7 <= cpu <= 10


@pytest.mark.slow
def test_a_loop_ends_by_its_cpu_time(script):
    settings = ScriptSettings(time_out_seconds=60, limits=ScriptLimits(cpu_seconds=0))
    assert "got no response" in one(script(python("while True: pass")), settings=settings).message


def test_quit_comes_first_and_then_the_end(folder, script):
    log = folder / "log"
    url = script(
        python("say('RESULT STATE ACCEPT')", end=f"open({str(log)!r}, 'w').write('quit'); sys.exit(0)")
    )
    (step,) = verify_at_client([url], JOB, ScriptSettings())
    assert step.outcome.accepted
    assert log.read_text() == "quit"


def test_a_script_that_spins_at_the_end_is_killed(script):
    # As the stock bash library does when its input ends, and this one does not know QUIT.
    url = script(
        python("say(f'RESULT STATE REJECT {os.getpid()}')", end="\n        while True: time.sleep(0.01)")
    )
    (step,) = verify_at_client([url], JOB, replace(QUICK, quit_seconds=0.1))
    assert not alive(int(step.outcome.message))


def test_a_closed_pool_leaves_nothing(script):
    pool = JsvPool(script(WHO), SERVER)
    pid = int(pool.verify(SERVER_JOB).message)
    pool.close()
    assert not alive(pid)
    with pytest.raises(Unavailable):
        pool.verify(SERVER_JOB)


# --- turns of users ---


class Gated:
    """A worker that verifies one job each time it is let."""

    def __init__(self, order: list[str]) -> None:
        self.order, self.let = order, threading.Semaphore(0)

    def verify(self, parameters):
        self.order.append(parameters.user)
        assert self.let.acquire(timeout=60)

    def retire(self):
        """It has no process."""

    wait = retire


@pytest.mark.parametrize(
    ("workers", "wanted"), [(1, "ann bob cid ann bob ann ann"), (2, "ann ann bob cid ann bob ann")]
)
def test_users_take_turns_at_the_workers(script, workers, wanted):
    pool, order = JsvPool(script(ACCEPT), SERVER), []
    gates = [Gated(order) for _ in range(workers)]
    pool._workers, pool._idle = gates, gates[:]
    threads = []
    for user in "ann ann ann ann bob bob cid".split():
        before = len(order), sum(map(len, pool._waiting.values()))
        threads.append(threading.Thread(target=pool.verify, args=(replace(SERVER_JOB, user=user),)))
        threads[-1].start()
        wait_until(lambda before=before: (len(order), sum(map(len, pool._waiting.values()))) != before)
    for done in range(len(threads)):
        wait_until(lambda done=done: len(order) == min(len(threads), done + workers))
        gates[-1 - done % workers].let.release()
    for thread in threads:
        thread.join()
    assert order == wanted.split()
    pool.close()
    assert (pool._waiting, pool._last_turn) == ({}, {})


# --- accounts ---


@pytest.mark.skipif(not ROOT, reason="only root can change to another account")
def test_the_account_of_a_server_script(script, pool_of):
    url = script(python("say(f'RESULT STATE REJECT {os.getuid()} {os.getgid()} {len(os.getgroups())}')"))
    uid, gid, _ = pool_of(url).verify(SERVER_JOB).message.split()
    assert "0" not in {uid, gid}
    named = parse_url(f"script:daemon@{url.path}", JsvContext.SERVER)
    assert named
    assert pool_of(named).verify(SERVER_JOB).message.startswith("1 1 ")


@pytest.mark.skipif(not ROOT, reason="only root can change to another account")
@pytest.mark.parametrize(("user", "why"), [("", "would run as root"), ("root", "must not run as root")])
def test_a_server_script_is_never_root(script, user, why):
    with pytest.raises(InvalidConfig, match=why):
        JsvPool(replace(script(ACCEPT), user=user), QUICK)


def test_another_account_needs_root(script, monkeypatch):
    monkeypatch.setattr("lodesman.server.jsv.process._can_change_user", lambda: False)
    url = script(ACCEPT)
    with pytest.raises(InvalidConfig, match="not the necessary permission to start JSV as different user"):
        account_of(replace(url, user="daemon"), JsvContext.SERVER, QUICK)
    assert account_of(url, JsvContext.SERVER, QUICK) is None
    assert account_of(replace(url, user="daemon"), JsvContext.CLIENT, QUICK) is None


def test_an_unknown_account(script):
    with pytest.raises(InvalidConfig, match="there is no such account"):
        JsvPool(replace(script(ACCEPT), user="no-such"), QUICK)


# --- the chain of a client ---


def test_each_script_gets_the_job_as_the_one_before_left_it(script):
    urls = [
        script(python(f"say('PARAM N ' + params['N'] + '{name}')\nsay('RESULT STATE ACCEPT')"), name)
        for name in "abc"
    ]
    steps = verify_at_client(urls, JOB, ScriptSettings())
    assert [step.url for step in steps] == urls
    assert steps[-1].outcome.parameters.values["N"] == "jobabc"


def test_the_first_rejection_ends_the_chain(script):
    urls = [script(ACCEPT, "a"), script(WHO, "b"), script(ACCEPT, "c")]
    assert [step.outcome.accepted for step in verify_at_client(urls, JOB, ScriptSettings())] == [True, False]


def test_a_script_that_cannot_run_ends_all_before_the_first(folder, script):
    ran = folder / "ran"
    good = script(python("say('RESULT STATE ACCEPT')", start=f"open({str(ran)!r}, 'w')"), "good")
    for bad in (folder / "gone", folder):
        with pytest.raises(InvalidConfig) as refused:
            verify_at_client([good, JsvUrl(path=str(bad))], JOB, ScriptSettings())
        assert refused.value.message == f'JSV "{bad}" is either not a file or not executable.'
    assert not ran.exists()


def test_a_worker_that_is_interrupted_does_not_keep_its_process(script, monkeypatch):
    worker = ScriptWorker(script(WHO), JsvContext.CLIENT, ScriptSettings())
    first = int(worker.verify(JOB).message)

    def interrupted(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lodesman.server.jsv.protocol.Dialogue.take_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.verify(JOB)
    assert not alive(first)
