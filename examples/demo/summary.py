"""The demo's report on one screen of 80 x 40: pure functions from a DemoReport to lines.

Plain and coloured text are the same lines, clipped to the width; control characters are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from examples.demo.compose import Composition, Picture
from examples.demo.figures import UNKNOWN, clip, duration, number, percent, plain
from examples.demo.merge import PiEstimate, WordTable
from examples.demo.report import AttemptCheck, DemoReport, GroupShare, Reason
from rich.text import Text

from lodesman.wire.server import Spread

WIDTH = 80
HEIGHT = 40
_MAX_SITES = 6
_MAX_GROUPS = 4
_MAX_HELD = 4
_MAX_FAILED = 6
_LABEL = 9
_STATES = (
    "Done", "Failed", "Killed", "Held", "Completing", "Stalled", "Running", "Matched", "Waiting",
)  # fmt: skip


def summary_lines(report: DemoReport) -> list[Text]:
    """The screen: at most HEIGHT lines of at most WIDTH characters."""
    if report.interrupted and report.states is None:
        text = (
            f"Lodesman demo: interrupted after {duration(report.elapsed_seconds)}, before there were results"
        )
        return [Text(text)]
    blank = Text()
    lines = [
        *_title(report),
        blank,
        *_sites(report),
        blank,
        *_times(report),
        blank,
        *_groups(report.groups),
        blank,
        *_reasons("Held", report.held, _MAX_HELD),
        *_reasons("Failed", report.failed, _MAX_FAILED),
        *_composition(report.composition),
        _attempts(report.attempts),
        _labelled("Results", UNKNOWN if report.results is None else f"{report.results}/"),
    ]
    return [Text(clip(line.plain, WIDTH).rstrip(), line.style) for line in lines]


def summary_text(report: DemoReport) -> str:
    """The screen as plain text, with a line end after each line."""
    return "".join(f"{line.plain}\n" for line in summary_lines(report))


def summary_view(report: DemoReport) -> Text:
    """The screen for rich."""
    return Text("\n").join(summary_lines(report))


def _title(report: DemoReport) -> list[Text]:
    states = report.states
    jobs = number(None if states is None else sum(states.values()), 15)
    ended = "interrupted after" if report.interrupted else "in"
    first = f"Lodesman demo: {jobs} jobs {ended} {duration(report.elapsed_seconds)}"
    if report.first_result_seconds is not None:
        first += f", first result after {duration(report.first_result_seconds)}"
    if states is None:
        return [Text(first, "bold"), Text(f"States: {UNKNOWN}", "yellow")]
    second = f"States: {_counts(states)}"
    if report.expected is None:
        return [Text(first, "bold"), Text(second)]
    right = _present(states) == _present(report.expected)
    second += ", as expected" if right else f"; expected {_counts(report.expected)}"
    return [Text(first, "bold"), Text(second, "green" if right else "red")]


def _present(states: Mapping[str, int]) -> dict[str, int]:
    return {state: count for state, count in states.items() if count}


def _counts(states: Mapping[str, int]) -> str:
    present = _present(states)
    known = [state for state in _STATES if state in present]
    rest = sorted(present.keys() - set(known))
    return ", ".join(f"{number(present[state], 12)} {state}" for state in [*known, *rest]) or "no jobs"


def _sites(report: DemoReport) -> Iterable[Text]:
    yield _head(f"{'Site':<32} {'Pilots':>10} {'Done':>10} {'Failed':>10} {'CPU time':>12}")
    for row in report.sites[:_MAX_SITES]:
        counts = " ".join(number(value, 10).rjust(10) for value in (row.pilots, row.done, row.failed))
        yield Text(f"{clip(row.site, 32):<32} {counts} {duration(row.cpu_seconds):>12}")
    yield from _more(len(report.sites) - _MAX_SITES, "sites")
    if not report.sites:
        yield Text(UNKNOWN)


def _times(report: DemoReport) -> Iterable[Text]:
    yield _head(f"{'Time':<32} {'jobs':>10} {'p50':>10} {'p95':>10} {'max':>12}")
    for label, values in (("waiting for a pilot", report.waiting), ("running", report.running)):
        yield Text(f"{label:<32} {_spread(values)}")


def _spread(values: Spread | None) -> str:
    if values is None:
        return " ".join([UNKNOWN.rjust(10)] * 3 + [UNKNOWN.rjust(12)])
    middle = f"{duration(values.p50):>10} {duration(values.p95):>10}"
    return f"{number(values.count, 10):>10} {middle} {duration(values.most):>12}"


def _groups(groups: Sequence[GroupShare]) -> Iterable[Text]:
    yield _head(f"{'Group':<17} {'share':>8} {'starts':>10} {'actual':>10} {'target':>10} {'deviation':>14}")
    total = sum(row.actual for row in groups)
    for row in groups[:_MAX_GROUPS]:
        yield _group(row, total)
    yield from _more(len(groups) - _MAX_GROUPS, "groups")
    if not groups:
        yield Text(UNKNOWN)


def _group(row: GroupShare, total: int) -> Text:
    deviation = UNKNOWN if row.deviation is None else f"{number(row.deviation, 8, digits=1)} sigma"
    counts = f"{number(row.share, 8):>8} {number(row.actual, 10):>10}"
    parts = f"{percent(row.actual, total):>10} {percent(row.target, total):>10}"
    return Text(f"{clip(row.group, 17):<17} {counts} {parts} {deviation:>14}")


def _reasons(label: str, rows: Sequence[Reason] | None, most: int) -> Iterable[Text]:
    if not rows:
        yield _labelled(label, UNKNOWN if rows is None else "none")
        return
    shown = rows if len(rows) <= most else rows[: most - 1]
    for k, row in enumerate(shown):
        example = "" if row.example is None else f" (job {number(row.example, 12)})"
        room = WIDTH - _LABEL - 6 - len(example)
        # The queues are known here; what excludes them is not.
        reason = row.text.partition(" can run it: ")[2] or row.text
        text = f"{number(row.count, 5):>5} {clip(reason, room, keep='ends')}{example}"
        yield _labelled("" if k else label, text, style="" if label == "Held" else "red")
    rest = rows[len(shown) :]
    if rest:
        jobs = number(sum(row.count for row in rest), 12)
        yield _labelled("", f"{'':5} and {jobs} jobs for {number(len(rest), 12)} more reasons")


def _composition(composition: Composition | None) -> Iterable[Text]:
    if composition is None:
        yield _labelled("Picture", UNKNOWN)
        yield _labelled("Pi", UNKNOWN)
        yield _labelled("Words", UNKNOWN)
        return
    yield _picture(composition.picture)
    yield _labelled("Pi", _pi(composition.pi, composition.unheard.get("pi", 0)))
    yield _labelled("Words", _words(composition.words))
    if composition.faults:
        faults = f"{number(len(composition.faults), 8)} results left out: {composition.faults[0]}"
        yield _labelled("Faults", faults, style="red")


def _picture(picture: Picture | None) -> Text:
    if picture is None or picture.path is None:
        return _labelled("Picture", "no tile came", style="yellow")
    tiles = f"{number(picture.found, 8)} tiles"
    if picture.missing:
        tiles += f", {number(len(picture.missing), 8)} missing"
    about = f", {picture.width} x {picture.height}, {tiles}"
    path = clip(str(picture.path), WIDTH - _LABEL - len(about), keep="end")
    return _labelled("Picture", path + about, style="yellow" if picture.missing else "")


def _pi(pi: PiEstimate | None, unheard: int) -> str:
    if pi is None:
        return UNKNOWN
    silent = f", {number(unheard, 8)} without result" if unheard else ""
    figures = f"{pi.value:.6f} +- {pi.error:.6f}"
    return f"{figures} ({number(pi.samples, 15)} points of {number(pi.parts, 8)} jobs{silent})"


def _words(words: WordTable | None) -> str:
    if words is None:
        return UNKNOWN
    missing = f", {len(words.missing)} of {words.pieces} pieces missing" if words.missing else ""
    about = f" ({number(words.total, 15)} words of {clip(words.text, 16)}{missing})"
    top = ", ".join(f"{word} {number(count, 9)}" for word, count in words.counts[:6])
    return clip(top, WIDTH - _LABEL - len(about)) + about


def _attempts(check: AttemptCheck | None) -> Text:
    if check is None:
        return _labelled("Attempts", UNKNOWN)
    # A killed pilot may have started attempts that the server does not know, and vice versa.
    seen, jobs = "", " jobs"
    if check.seen not in (None, check.attempts):
        seen, jobs = f" (pilots saw {number(check.seen, 12)})", ""
    text = f"{number(check.started, 12)} jobs started, {number(check.attempts, 12)} attempts{seen}, "
    text += f"{number(check.twice, 12)} ran twice, {number(check.lost, 12)}{jobs} lost"
    if check.twice or check.lost:
        return _labelled("Attempts", text, style="bold red")
    return _labelled("Attempts", text, style="green" if check.twice == check.lost == 0 else "")


def _more(count: int, what: str) -> Iterable[Text]:
    if count > 0:
        yield Text(f"and {number(count, 12)} more {what}")


def _head(text: str) -> Text:
    return Text(text, "bold cyan")


def _labelled(label: str, text: str, *, style: str = "") -> Text:
    return Text(f"{label:<{_LABEL}}{plain(text)}", style)
