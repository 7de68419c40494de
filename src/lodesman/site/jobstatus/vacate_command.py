"""`vacate`: its words, and what it says. Only --apply does what the plan shows."""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, TextIO

from lodesman.site.jobstatus import simulate_command
from lodesman.site.jobstatus.applier import Applier
from lodesman.site.jobstatus.parser import (
    PlainParser,
    read_fraction,
    read_megabytes,
    read_span,
    whole_number,
)
from lodesman.site.jobstatus.plan_words import (
    as_json,
    in_words,
    missing_in_words,
    still_there_in_words,
    unread_in_words,
)
from lodesman.site.jobstatus.sites.directories import DirectoriesDoor
from lodesman.site.jobstatus.sites.door import JobPlaces, SiteDoor, SiteFault
from lodesman.site.jobstatus.sites.gridengine import GridEngineDoor
from lodesman.site.jobstatus.sites.htcondor import CondorDoor
from lodesman.site.jobstatus.sites.slurm import SlurmDoor
from lodesman.site.jobstatus.survey import LookAt, read_by_command, read_here, survey
from lodesman.site.jobstatus.vacate.candidates import (
    KILL,
    MARGIN,
    SILENT_FACTOR,
    Candidate,
    Confidence,
    Terms,
)
from lodesman.site.jobstatus.vacate.plan import (
    ANY_NODE,
    HOSTS,
    OFF,
    ONE_NODE,
    STRICT,
    TIEBREAK,
    VacatePlan,
    VacateRequest,
    make_plan,
)
from lodesman.site.jobstatus.vacate.several import ResourceNeed
from lodesman.site.jobstatus.vacate_memory import VacateMemory

DONE, FAILED, INFEASIBLE, TOO_OLD = 0, 1, 3, 4
"""Exit codes; 2: wrong usage."""
AUDIT = "/var/log/jobstatus-vacate.jsonl"
_HOUR = 3600
_WORDS = "Choose the jobs that free enough cores and lose least, by what they publish in $JOBSTATUS."
_EPILOG = """\
Costs are core-hours: what jobs have computed and not committed, or what their idle cores waste until they end.
A kill ends a job now; a drain lets it end by itself within the time given. N is freed beside what is idle now.

examples:
  %(prog)s --free 16 --backend slurm
  %(prog)s --free 64 --scope node --within 4h --backend slurm
  %(prog)s --free 8 --nodes 4 --within 2h --confidence max --backend htcondor --json
  %(prog)s --free 16 --within 4h --backend slurm --apply

Exit codes: 0 there is a plan, or all is free; 1 the batch system failed, 2 wrong usage, 3 not enough jobs or too dear,
4 what jobs publish is too old."""
_FORM: dict[str, Any] = {
    "description": _WORDS,
    "epilog": _EPILOG,
    "allow_abbrev": False,
    "formatter_class": argparse.RawDescriptionHelpFormatter,
}


# --- words ----------------------------------------------------------------------------------------------------------------


def _confidence(word: str) -> Confidence:
    kind, equals, text = word.partition("=")
    defaults = {"expected": None, "max": None, "margin": MARGIN, "risk": None}
    if kind not in defaults or (equals and kind in ("expected", "max")):
        raise argparse.ArgumentTypeError(f"{word!r} is none of expected, max, margin=X, risk, risk=SIGMA")
    return Confidence(kind, read_fraction(text) if equals else defaults[kind])


def _scope(word: str) -> Sequence[str]:
    kind, equals, names = word.partition("=")
    hosts = [name for name in names.split(",") if name]
    if (kind in (ANY_NODE, ONE_NODE) and not equals) or (kind == HOSTS and hosts):
        return [kind, *hosts]
    raise argparse.ArgumentTypeError(f"{word!r} is none of any-node, node, hosts=NAME,NAME...")


def declare(parser: argparse.ArgumentParser) -> None:
    """The words of `vacate`."""
    # fmt: off
    add = parser.add_argument
    add("--free", type=whole_number(1), metavar="N", help="cores to free, beside those that are idle")
    add("--memory", type=read_megabytes, default=0, metavar="SIZE", help="memory to free, too: MB, or with G or T")
    add("--gpus", type=whole_number(0), default=0, metavar="N", help="GPUs to free, too")
    add("--scope", type=_scope, default=[ANY_NODE], metavar="WHERE",
        help="any-node: N cores anywhere (default); node: on one node; hosts=A,B: on these together")
    add("--nodes", type=whole_number(1), metavar="K", help="N cores on each of K nodes (of the hosts of --scope, if any)")
    add("--within", type=read_span, default=0.0, metavar="T", help="for drains: 30m, 4h (default: now, by kills)")
    add("--confidence", type=_confidence, default=Confidence(), metavar="HOW",
        help="when a drain is in time: expected (its expected end), max (its enforced end), margin=X (either its expected "
        f"end in X times T or its enforced end in T; default: {MARGIN}), risk (weigh the chance to be late, by how "
        "well each owner knew his ends so far), risk=SIGMA (the same for all owners)")
    add("--priority", choices=(TIEBREAK, STRICT, OFF), default=TIEBREAK,
        help="priority among jobs of one owner: at equal cost and up to a fifth more (default), always, or never")
    add("--silent-factor", type=read_fraction, default=SILENT_FACTOR, metavar="X",
        help=f"charge a core that publishes nothing X times the median of the others (default: {SILENT_FACTOR})")
    add("--max-waste", type=read_fraction, metavar="H", help="most core-hours that may be lost")
    add("--exclude", nargs="+", action="extend", default=[], metavar="JOB", help="jobs that stay")
    add("--backend", choices=("slurm", "htcondor", "gridengine", "directories"),
        help="what runs the jobs; directories: no batch system, only directories of this machine")
    add("--jobstatus", default=JobPlaces.jobstatus, metavar="PATH",
        help="the directory of a job, with {job}, {node}, {user} in it (default: %(default)s)")
    add("--jobfeatures", default="", metavar="PATH",
        help="its Job Features, in the same way: shutdowntime_job is written there to make it drain")
    add("--read-with", metavar="COMMAND",
        help="how the directories of another machine are read: 'ssh {node} python3 /opt/jobstatus.pyz' (default: here)")
    add("--write-with", default="", metavar="COMMAND",
        help="what runs a line of the shell on another machine, to write there: 'ssh {node}' (default: here)")
    add("--kill-wait", type=read_span, metavar="T",
        help="how long a job that is killed may keep its cores, epilog and all (default: what Slurm says; else 0)")
    add("--requeue", action="store_true", help="jobs that are killed wait again (Slurm and Grid Engine)")
    add("--json", action="store_true", dest="as_json", help="one JSON object")
    add("--apply", action="store_true", help="do it; without it, nothing is done")
    add("--audit", type=Path, default=Path(AUDIT), metavar="FILE",
        help="where --apply adds a line for each step (default: %(default)s)")
    add("--history", type=Path, metavar="FILE",
        help="what was learned of owners and jobs; --apply makes it, all calls add to it (default: FILE.history of --audit)")
    # fmt: on

    parser.set_defaults(run=run, refuse=parser.error)
    simulate_command.add_parser(parser.add_subparsers(metavar="[simulate]"))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `vacate` beside other commands."""
    declare(subparsers.add_parser("vacate", help=_WORDS, **_FORM))


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Returns the exit code."""
    parser = PlainParser(prog, **_FORM)
    declare(parser)
    options = parser.parse_args(arguments)
    return int(options.run(options))


# --- one call -------------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Show the plan, and with --apply carry it out; returns the exit code."""
    if options.free is None or options.backend is None:
        options.refuse("say --free N and --backend NAME")
    request = request_of(options)
    if request.priority == STRICT and (request.need.memory_mb or request.need.gpus):
        options.refuse("--priority strict goes with cores alone, not with --memory or --gpus")
    door, look_at, memory = door_of(options), look_of(options), _memory(options)
    try:
        now = time.time()
        candidates = survey(door, look_at, now)
        history = memory.update(candidates, now, candidates)
        candidates = [history.judged(job) for job in candidates]
        kill_s = door.kill_s() if options.kill_wait is None else options.kill_wait
        request = replace(request, terms=replace(request.terms, sigmas=history.sigmas(), kill_s=kill_s))
        plan = make_plan(candidates, request, now, _commands(door, request, now))
        sys.stdout.write(
            as_json(plan) if options.as_json else "".join(f"{line}\n" for line in in_words(plan))
        )
        sys.stdout.flush()
        sys.stderr.writelines(f"vacate: {line}\n" for line in unread_in_words(candidates))
        if memory.fault:
            sys.stderr.write(f"vacate: the history is not used: {memory.fault}\n")
        if options.apply and plan.is_feasible:
            jobs = {job.job: job for job in candidates}
            return _apply(plan, options.audit, lambda file: Applier(door, look_at, file, jobs, memory))
    except BrokenPipeError:
        raise
    except (SiteFault, OSError) as fault:
        sys.stderr.write(f"vacate: {fault}\n")
        return FAILED
    if plan.too_old:
        return TOO_OLD
    if not options.apply and plan.is_feasible:
        sys.stderr.write("Nothing was done: with --apply it is.\n")
    return DONE if plan.is_feasible else INFEASIBLE


def _memory(options: argparse.Namespace) -> VacateMemory:
    path = options.history or options.audit.with_name(f"{options.audit.name}.history")
    return VacateMemory(path, options.backend, keeps=options.apply)


def _apply(plan: VacatePlan, audit: Path, applier: Callable[[TextIO], Applier]) -> int:
    with audit.open("a", encoding="utf-8") as file:
        lacking = applier(file).run(plan)
    if lacking is None:
        return DONE
    words = list(still_there_in_words(lacking)) or missing_in_words(lacking)
    sys.stderr.writelines(f"vacate: {line}\n" for line in words)
    return INFEASIBLE


def request_of(options: argparse.Namespace) -> VacateRequest:
    """What the words ask for."""
    scope, *hosts = options.scope
    return VacateRequest(
        ResourceNeed(options.free, options.memory, options.gpus),
        scope=scope,
        hosts=tuple(hosts),
        nodes=options.nodes,
        terms=Terms(options.within, options.confidence, options.silent_factor),
        priority=options.priority,
        max_waste=None if options.max_waste is None else round(options.max_waste * _HOUR),
        exclude=tuple(options.exclude),
    )


def door_of(options: argparse.Namespace) -> SiteDoor:
    """The batch system."""
    places = _places(options)
    doors: dict[str, Callable[[], SiteDoor]] = {
        "slurm": lambda: SlurmDoor(places),
        "gridengine": lambda: GridEngineDoor(places),
        "htcondor": lambda: CondorDoor(places),
        "directories": lambda: DirectoriesDoor(places, socket.gethostname()),
    }
    return doors[options.backend]()


def look_of(options: argparse.Namespace) -> LookAt:
    """How directories are read."""
    places = _places(options)
    return read_by_command(options.read_with, places) if options.read_with else read_here(places)


def _places(options: argparse.Namespace) -> JobPlaces:
    return JobPlaces(options.jobstatus, options.jobfeatures, options.write_with, options.requeue)


def _commands(
    door: SiteDoor, request: VacateRequest, now: float
) -> Callable[[Candidate, str], Sequence[str]]:
    def commands(job: Candidate, action: str) -> Sequence[str]:
        ends = now + request.terms.drains_within
        acts = door.kill(job) if action == KILL else door.drain(job, ends, now)
        return [str(act) for act in acts]

    return commands


if __name__ == "__main__":
    sys.exit(main())
