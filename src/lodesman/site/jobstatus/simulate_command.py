"""`vacate simulate`: what choosing by $JOBSTATUS would have saved by a site's own accounting."""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import TextIO

from lodesman.site.jobstatus.parser import read_fraction
from lodesman.site.jobstatus.vacate.candidates import Terms
from lodesman.site.jobstatus.vacate.simulation import (
    Assumptions,
    Losses,
    compare,
    learn_errors,
    moments,
    read_swf,
    simulate_job,
)

_WORDS = "Compare youngest first with the choice by $JOBSTATUS, on a log in the Standard Workload Format."
_EPILOG = """\
At random moments of the log a part of the cores that are busy in one partition is freed. The log says when jobs began and
ended. It does not say what they ran and saved: this is assumed and drawn at random, so try other values, too. Job ids, users
and partitions are those of the log; files that end in .gz are read as well."""
_NAMES = {
    "youngest": "youngest first",
    "kills": "by $JOBSTATUS, kills now",
    "best_kills": "  the best kills there are",
    "mixed": "by $JOBSTATUS, kills and drains",
    "risk": "  the same with --confidence risk",
    "best_mixed": "  the best kills and drains",
}
_LINES = {
    "pilots": "{:.0%} of the jobs are pilots, which run payloads of 1, 2 or 4 cores one after the other",
    "payload_hours": "payloads of pilots take {:g} h (median)",
    "payload_sigma": "the logarithm of that has a standard deviation of {:g}",
    "commits": "{:.0%} of the other jobs save their work every hour, the rest never",
    "silent": "{:.0%} of all jobs publish nothing",
    "error": "expected times left are wrong by a factor of exp({:g}) (one standard deviation)",
    "spread": "owners differ in that error by a factor of exp({:g}) (one standard deviation)",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `simulate`."""
    parser = subparsers.add_parser(
        "simulate", help=_WORDS, description=_WORDS, epilog=_EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--swf", type=Path, required=True, metavar="FILE", help="the log")
    add(
        "--part",
        type=read_fraction,
        default=0.25,
        metavar="X",
        help="part of the busy cores to free (default: %(default)s)",
    )
    add(
        "--hours", type=read_fraction, default=4.0, metavar="H", help="time for drains (default: %(default)s)"
    )
    add("--moments", type=int, default=200, metavar="N", help="how many moments (default: %(default)s)")
    add("--seed", type=int, default=1, metavar="N", help="of the random numbers (default: %(default)s)")
    add("--json", action="store_true", dest="as_json", help="one JSON object")
    for field in fields(Assumptions):
        name = "--" + field.name.replace("_", "-")
        words = _LINES[field.name].format(field.default)
        add(
            name,
            type=read_fraction,
            default=field.default,
            metavar="X",
            help=f"{words.replace('%', '%%')} (default)",
        )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Returns 0, or 1 if there is nothing to compare."""
    assumed = Assumptions(**{field.name: getattr(options, field.name) for field in fields(Assumptions)})
    try:
        with _open_log(options.swf) as lines:
            log = list(read_swf(lines))
    except (OSError, EOFError) as fault:
        sys.stderr.write(f"vacate: {options.swf} cannot be read: {fault}\n")
        return 1
    rng = random.Random(options.seed)
    all_losses: list[Losses] = []
    for now, running in moments(log, options.moments, rng):
        jobs = [simulate_job(logged, assumed, rng, now) for logged in running]
        cores = max(1, round(options.part * sum(logged.cores for logged in running)))
        terms = Terms(within=options.hours * 3600, sigmas=learn_errors(log, assumed, rng, now))
        losses = compare(jobs, cores, now, terms)
        all_losses += [losses] if losses else []
    if not all_losses or not any(losses.youngest for losses in all_losses):
        sys.stderr.write(f"vacate: {options.swf} has no jobs that run and could be vacated\n")
        return 1
    means = {
        name: sum(getattr(losses, name) for losses in all_losses) / len(all_losses) / 3600 for name in _NAMES
    }
    if options.as_json:
        facts = {
            "jobs": len(log),
            "moments": len(all_losses),
            "core_hours": means,
            "assumed": asdict(assumed),
        }
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.writelines(
            f"{line}\n" for line in _in_words(len(log), len(all_losses), means, assumed, options)
        )
    return 0


def _open_log(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _in_words(
    jobs: int, count: int, means: dict[str, float], assumed: Assumptions, options: argparse.Namespace
) -> Iterator[str]:
    yield f"{jobs:,} jobs; {count:,} moments, each time {options.part:.0%} of the busy cores of a partition are freed."
    yield f"  {'':<33} {'core-hours lost':>15}  {'of youngest first':>17}"
    for name, words in _NAMES.items():
        yield f"  {words:<33} {means[name]:>15,.1f}  {means[name] / means['youngest']:>17.0%}"
    yield f"Drains have {options.hours:g} h. Assumed, since the log does not say it:"
    for name, value in asdict(assumed).items():
        yield f"  {_LINES[name].format(value)}"
