"""Job submission verifiers: dialogues of one worker, 16 parameters each, beside a loop that only writes and reads lines;
and submissions through a job class and the server's verifier.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure, best
from bench.generator import LoadFault, encode, replay, wrk
from bench.server import Server
from bench.stats import percentile

from lodesman.server.jsv import OWN_LIBRARIES, JsvContext, JsvUrl, Parameters, ScriptSettings
from lodesman.server.jsv.parameters import parameter_lines
from lodesman.server.jsv.runner import ScriptWorker

BARE = """#!{python}
import sys
for line in sys.stdin:
    if line == "START\\n":
        params = {{}}
        sys.stdout.write("STARTED\\n")
        sys.stdout.flush()
    elif line == "BEGIN\\n":
        sys.stdout.write("RESULT STATE " + ("ACCEPT" if params["N"] == "job\\n" else "REJECT") + "\\n")
        sys.stdout.flush()
    elif line == "QUIT\\n":
        break
    else:
        word, name, value = line.split(" ", 2)
        params[name] = value
"""
PERL = """#!/usr/bin/perl
use lib "$ENV{SGE_ROOT}/util/resources/jsv";
use JSV qw(:ALL);
jsv_on_verify(sub { jsv_get_param('N') eq 'job' ? jsv_accept() : jsv_reject() });
jsv_main();
"""
SHELL = """#!/bin/sh
jsv_on_start() { return; }
jsv_on_verify() { if [ "$(jsv_get_param N)" = job ]; then jsv_accept; else jsv_reject; fi; }
. "$SGE_ROOT/util/resources/jsv/jsv_include.sh"
jsv_main
"""
CLASS = """jcname bench
CMDNAME {~}/usr/bin/simulate
N {~}simulate
l_hard {~+}{~}h_rt=3600,h_vmem=1G
"""
CORRECTS = """#!/usr/bin/perl
use lib "$ENV{SGE_ROOT}/util/resources/jsv";
use JSV qw(:ALL);
open(my $count, '>>', "%s"); $count->autoflush(1);
jsv_on_verify(sub { print $count "."; jsv_set_param('P', 'bench'); jsv_correct() });
jsv_main();
"""
MILLION = 1_000_000
JOB = Parameters(
    context=JsvContext.CLIENT, user="ann", group="users", command="/home/ann/run.sh", arguments=("one",),
    values={"A": "account", "N": "job", "M": "ann@host", "cwd": "/home/ann", "l_hard": "h_vmem=1G", "P": "physics",
            "pe_name": "smp", "pe_min": "4", "pe_max": "4"},
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One kind of script. `share`: wanted, of the bare loop in the same run; or `target`, dialogues a second."""

    row: str
    what: str
    text: str
    share: float = 0.0
    target: float = 0.0


SETTINGS = (
    Setting(row="jsv-bare", what="a bare Python script", text=BARE.format(python=sys.executable), share=0.5),
    Setting(row="jsv-perl", what="a script for JSV.pm", text=PERL, share=0.5),
    Setting(row="jsv-sh", what="a script for the sh library", text=SHELL, target=200),
)


def measure(context: Context) -> list[Figure]:
    """Our host and the bare loop by turns, on each kind of script."""
    assert len(parameter_lines(JOB)) - 1 == 16  # VERSION is no parameter of a job
    return [_figure(context, setting) for setting in SETTINGS]


def _figure(context: Context, setting: Setting) -> Figure:
    script = context.home / f"{setting.row}.jsv"
    script.write_text(setting.text)
    script.chmod(0o755)
    ours, bare = [], []
    for _ in range(context.samples):
        bare.append(_by_bare_loop(script, context.seconds / 2))
        ours.append(_by_us(script, context.seconds / 2))
    floor = max(bare)
    return Figure(
        row=setting.row, what=f"dialogues of one worker with {setting.what}", unit="/s", value=max(ours),
        target=setting.target or setting.share * floor, floor_name="bare loop", floor=floor, size="16 parameters",
        samples=ours, details={"bare": bare},
    )  # fmt: skip


def _by_us(script: Path, seconds: float) -> float:
    worker = ScriptWorker(JsvUrl(path=str(script)), JsvContext.CLIENT, ScriptSettings())

    def dialogue() -> None:
        if not worker.verify(JOB).accepted:
            raise ValueError("rejected")

    try:
        return _rate(dialogue, seconds)
    finally:
        worker.kill()


def _by_bare_loop(script: Path, seconds: float) -> float:
    pairs = [line.split(" ", 2)[1:] for line in parameter_lines(JOB)]
    with subprocess.Popen(
        [script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SGE_ROOT": str(OWN_LIBRARIES)}
    ) as process:
        assert process.stdin
        assert process.stdout
        write, flush, read = process.stdin.write, process.stdin.flush, process.stdout.readline

        def dialogue() -> None:
            write(b"START\n")
            flush()
            if read() != b"STARTED\n":
                raise ValueError("not started")
            for name, value in pairs:
                write(b"PARAM %b %b\n" % (name.encode(), value.encode()))
            write(b"BEGIN\n")
            flush()
            if not read().startswith(b"RESULT STATE ACCEPT"):
                raise ValueError("rejected")

        rate = _rate(dialogue, seconds)
        write(b"QUIT\n")
    return rate


def _rate(dialogue: Callable[[], None], seconds: float) -> float:
    for _ in range(10):
        dialogue()
    count = 0
    begun = time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds:
        for _ in range(10):
            dialogue()
        count += 10
    return count / spent


@contextmanager
def _verified(context: Context) -> Iterator[tuple[Server, str, Path]]:
    """A server with a job class and a Perl script; a token; and the file to which the script writes a character for each
    dialogue.
    """
    data = context.world(context.size())
    token = context.tokens(data)["admin"]
    with tempfile.TemporaryDirectory(prefix="bench-jsv-") as name:
        Path(name).chmod(0o755)
        script, dialogues = Path(name) / "check.pl", Path(name) / "dialogues"
        dialogues.touch()
        dialogues.chmod(0o666)
        script.write_text(CORRECTS % dialogues)
        script.chmod(0o755)
        account = "" if os.geteuid() else "nobody@"
        with context.server(data, settings={"jsv.server": f"script:{account}{script}"}) as server:
            server.ask("POST", "/v1/job-classes", token, json.dumps({"text": CLASS}).encode())
            server.wait_for_calm()
            yield server, token, dialogues
    context.drop(data)


def submissions(context: Context) -> list[Figure]:
    """Single submissions and large arrays through a class and a script with two workers."""
    samples: list[dict[str, Any]] = []
    with _verified(context) as (server, token, dialogues):
        submit = partial(wrk, server.url, "submit.lua", connections=16, token=token, job_class="bench")
        for number in range(context.samples):
            submit(seconds=context.warm_seconds, seed=f"warm{number}")
            meter = server.meter()
            load = submit(seconds=context.seconds, seed=f"run{number}")
            if load.failed:
                raise LoadFault(f"{load.failed} refused of {load.requests}")
            cores = meter.read(wrk=load.cpu_seconds)
            samples.append(
                {
                    "rate": round(load.rate),
                    "p50_ms": load.p50_ms,
                    "p99_ms": load.p99_ms,
                    **cores,
                    "cpu_us": meter.cpu_us(load.requests),
                }
            )
        array = _arrays(server, token, dialogues, context.less(20, 2))
    top = best(samples, "rate")
    single = Figure(
        row="jsv-submit", what="single submissions through a job class and a Perl JSV, two workers, 16 connections",
        unit="/s", value=top["rate"], target=500, floor_name="SQLite commits", floor=context.floors.sqlite_commits,
        size=str(context.size()), samples=[one["rate"] for one in samples], cpu_us=top.pop("cpu_us"),
        details=top,
    )  # fmt: skip
    return [single, array]


def _arrays(server: Server, token: str, dialogues: Path, times: int) -> Figure:
    """Arrays of a million members through both; each is one dialogue."""
    server.wait_for_calm()  # what was under way when the load ended
    record = {"JobClass": "bench", "Arguments": "%s", "Parameters": MILLION}
    request = encode("POST", "/v1/jobs", token, json.dumps({"jobs": [record]}).encode())
    before, meter = dialogues.stat().st_size, server.meter()
    out = replay(server.port, [request] * times)
    meter.read()
    asked = dialogues.stat().st_size - before
    if out.failures or asked != times:
        raise LoadFault(f"{asked} dialogues for {times} arrays; {out.failures[:1]}")
    return Figure(
        row="jsv-array", what=f"one array of {MILLION:,} members through a job class and a Perl JSV, p99", unit="ms",
        value=1e3 * percentile(out.latencies, 99), target=500, less=True,
        size="on a quiet server", cpu_us=meter.cpu_us(times), details={"p50_ms": 1e3 * percentile(out.latencies, 50)},
    )  # fmt: skip
