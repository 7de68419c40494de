"""Advertises a site: count its jobs, write the ad, send it."""

from __future__ import annotations

import argparse
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Callable

from lodesman.base import kernel
from lodesman.base.errors import InvalidConfig, LodesmanError, Unauthorized
from lodesman.site.advertise.counts import JobCounts, NotCounted, count_jobs
from lodesman.wire.client import Client, parse_server

_MOST_STAMPS = 1_000  # an ad may have 5,000 words and marks
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"[!-~]{8,200}")
_CODES = {"unauthorized": 4, "forbidden": 4, "unavailable": 5, "too-often": 5, "not-counted": 7}
_EXAMPLES = """\
examples:
  %(prog)s --site LCG.North --from slurm --max-jobs 500 --max-pending 50 --print
  %(prog)s --site LCG.North --from gridengine --max-jobs 500 --server https://lode.example.org:7777 --token-file site.token
  %(prog)s --site LCG.North --from htcondor --every 300 -- -constraint 'AccountingGroup == "grid"'
  %(prog)s --site LCG.North --from arc -- /var/spool/arc/jobstatus
  %(prog)s --site LCG.North --from command -- /opt/site/count-jobs      it prints: running=3 submitting=0 pending=7

Words after -- are further words for squeue, qstat or condor_q; of `arc` the control directory, of `command` the command.
If the jobs cannot be counted, nothing is published: the site gets no pilots when its last ad is too old.
Exit codes: 0 published, 1 refused, 2 wrong usage, 4 no token or not a good one, 5 no server answers, 7 not counted."""


# --- the ad ---------------------------------------------------------------------------------------------------------------


def quote_text(text: str) -> str:
    """As ClassAds of the old form: a backslash is plain."""
    return '"' + text.replace('"', '\\"') + '"'


def requirements(options: argparse.Namespace) -> str:
    """Of the limits given; what was matched since the ad counts for each."""
    matched = "JobsMatchedSinceLastAdvertisement"
    clauses = (
        (options.max_jobs, "(CurMatches < MaxJobs)"),
        (options.max_submitting, f"({matched} + CurrentSubmittingJobs < MaxSubmittingJobs)"),
        (options.max_pending, f"({matched} + CurrentPendingJobs < MaxPendingJobs)"),
    )
    return " && ".join(clause for value, clause in clauses if value is not None) or "true"


def write_site_ad(options: argparse.Namespace, counts: JobCounts, now: float) -> str:
    """An attribute in each line; `--set` replaces any."""
    stations = [quote_text(station) for station in options.station or [options.site]]
    facts = {
        "Name": quote_text(options.site),
        "UpdateSequenceNumber": int(now * 1000),
        "Incarnation": quote_text(options.incarnation),
        "ClassAdLifetime": options.lifetime,
        "StationName": stations[0] if len(stations) == 1 else None,
        "StationNames": _list(stations) if len(stations) > 1 else None,
        "MaxJobs": options.max_jobs,
        "MaxSubmittingJobs": options.max_submitting,
        "MaxPendingJobs": options.max_pending,
        "CurrentJobs": counts.running,
        "CurrentSubmittingJobs": counts.submitting,
        "CurrentPendingJobs": counts.pending,
        "CurMatches": "CurrentJobs",
        "JobsMatchedSinceLastAdvertisement": "CurMatches - CurrentJobs",
        "Requirements": requirements(options),
        "PilotStamps": _list(map(quote_text, counts.stamps[:_MOST_STAMPS])),  # older ones were in ads before
    }
    names = {name.lower(): name for name in facts}
    for name, expression in options.set:
        facts[names.setdefault(name.lower(), name)] = expression
    return "".join(f"{name} = {value}\n" for name, value in facts.items() if value is not None)


def _list(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"


def incarnation() -> str:
    """The present start of the machine: after another one, numbers of ads may begin again."""
    try:
        boot = kernel.boot_id()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname()}:{boot}"


# --- sending --------------------------------------------------------------------------------------------------------------


def find_token(file: str, environ: Mapping[str, str]) -> str:
    """Of a file that its owner alone can read, or of LODE_TOKEN. Raises Unauthorized."""
    text = environ.get("LODE_TOKEN", "")
    if file:
        try:
            mode = Path(file).stat().st_mode
            text = Path(file).read_text(encoding="ascii", errors="replace")
        except OSError as fault:
            raise Unauthorized(f"The token file {file} cannot be read: {fault.strerror}.") from None
        if mode & 0o077 and stat.S_ISREG(mode):
            raise Unauthorized(f"Others can read the token file {file}.", hint=f"Run: chmod 600 {file}")
    if not _TOKEN.fullmatch(text.strip()):
        raise Unauthorized(
            "There is no token.", hint="Administrators make one: lode site token SITE; see --token-file."
        )
    return text.strip()


def send(options: argparse.Namespace, token: str, ad: str) -> str:
    """To the first server that answers; returns what is said of the ad. Raises LodesmanError."""
    servers = [parse_server(word.strip()) for word in options.server.split(",") if word.strip()]
    for server in servers:
        if not server.is_private:
            raise InvalidConfig(
                f"The token would travel to {server} in the clear.", hint="Name it as https://..."
            )
    client = Client(servers, token, ca_file=options.ca_file or None)
    try:
        answer = client.request("POST", "/v1/sites/ad", {"ad": ad})
    finally:
        client.close()
    gate = f"shut: {answer['shut']}" if answer["shut"] else "open"
    return f"lode: ad {answer['sequence']} of {answer['site']} is published; the gate is {gate}.\n"


# --- the command ----------------------------------------------------------------------------------------------------------


def _setting(word: str) -> Sequence[str]:
    name, _, expression = (part.strip() for part in word.partition("="))
    if not _NAME.fullmatch(name) or not expression or "\n" in word:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=EXPRESSION")
    return name, expression


def _from(least: int, most: int = 999_999_999) -> Callable[[str], int]:
    def read(word: str) -> int:
        if not (word.isascii() and word.isdigit()) or len(word) > 9 or not least <= int(word) <= most:
            upto = f"from {least} on" if most > 10**8 else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{word!r} is no number {upto}")
        return int(word)

    return read


def parser(prog: str | None, environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Of the command line."""
    command_line = argparse.ArgumentParser(
        prog, description="Count the jobs of a site, and publish them with its limits.", epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    sources = ("slurm", "gridengine", "htcondor", "arc", "command")
    # fmt: off
    add = command_line.add_argument
    add("--site", metavar="NAME", help="the site, as the server's configuration names it")
    add("--from", dest="source", choices=sources, help="what counts the jobs")
    add("--max-jobs", type=_from(0), metavar="N", help="MaxJobs: the most jobs here, in any state")
    add("--max-submitting", type=_from(0), metavar="N", help="MaxSubmittingJobs: the most on their way to the batch system")
    add("--max-pending", type=_from(0), metavar="N", help="MaxPendingJobs: the most that wait in the batch system")
    add("--set", action="append", default=[], type=_setting, metavar="NAME=EXPRESSION",
        help="another attribute, or another value")
    add("--station", action="append", metavar="NAME", help="StationName, by which jobs choose sites (default: the site)")
    add("--lifetime", type=_from(1, 86_400), default=900, metavar="S", help="how long the ad counts (default: 900)")
    add("--incarnation", default=incarnation(), metavar="TEXT",
        help="with another one, numbers of ads begin again (default: host and boot)")
    add("--every", type=_from(1), metavar="S", help="do it again and again")
    add("--once", action="store_true", help="do it once, as without --every")
    add("--print", action="store_true", dest="prints", help="print the ad, and send nothing")
    add("--server", default=environ.get("LODE_SERVER", ""), metavar="URL",
        help="several with commas between; also LODE_SERVER")
    add("--token-file", default=environ.get("LODE_TOKEN_FILE", ""), metavar="FILE",
        help="also LODE_TOKEN_FILE, or the token itself in LODE_TOKEN")
    add("--ca-file", default=environ.get("LODE_CA_FILE", ""), metavar="FILE",
        help="trust these certificates; also LODE_CA_FILE")
    add("--write", metavar="FILE", help="only write this program to FILE, for a machine without Lodesman")
    add("words", nargs="*", metavar="WORD", help="after --, see below")
    # fmt: on
    return command_line


def _copy(target: Path) -> None:
    target.write_bytes(Path(sys.argv[0]).read_bytes())
    target.chmod(0o755)


def one_round(options: argparse.Namespace, environ: Mapping[str, str], now: float) -> str:
    """Returns what there is to print. Raises LodesmanError."""
    token = "" if options.prints else find_token(options.token_file, environ)
    counts = count_jobs(options.source, options.words)
    limits = ((options.max_submitting, counts.submitting), (options.max_pending, counts.pending))
    if any(limit is not None and count is None for limit, count in limits):
        raise NotCounted("the command counts no submitting or no pending jobs, for which there is a limit")
    ad = write_site_ad(options, counts, now)
    return ad if options.prints else send(options, token, ad)


def main(
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    write: Callable[[Path], None] = _copy,
) -> int:
    """Returns the exit code. `write` leaves this program in a file."""
    reader = parser(prog, environ)
    options = reader.parse_args(arguments)
    if options.write:
        write(Path(options.write))
        return 0
    if not (options.site and options.source):
        reader.error("--site and --from are needed")
    if options.source in ("arc", "command") and not options.words:
        reader.error(f"--from {options.source} needs a word after --")
    if not (options.prints or options.server):
        reader.error("--server is needed")
    while True:
        begun, code = time.time(), 0
        try:
            sys.stdout.write(one_round(options, environ, begun))
            sys.stdout.flush()
        except LodesmanError as fault:
            code = _CODES.get(fault.code, 1)
            sys.stderr.write(f"lode: {fault}\n")
        if options.once or not options.every:
            return code
        time.sleep(max(1.0, begun + options.every - time.time()))


if __name__ == "__main__":
    sys.exit(main())
