"""Job submission verifiers: dialogues of one worker, 16 parameters each, beside a loop that only writes and reads lines."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.context import Context
from bench.figures import Figure

from lodesman.jsv import OWN_LIBRARIES, JsvContext, JsvUrl, Parameters, ScriptSettings
from lodesman.jsv.parameters import parameter_lines
from lodesman.jsv.runner import ScriptWorker

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
