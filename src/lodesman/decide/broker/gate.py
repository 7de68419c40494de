"""Whether a site takes one more match now: by its ad, and by matches since then, as the rows of pilots say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from lodesman.base.errors import counted
from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.broker.rules import CUR_MATCHES, GATE_NAMES, GateRules, is_less, rules_of
from lodesman.languages.classad import EMPTY, Ad, Run, Value, write_value
from lodesman.languages.classad.ads import MOST_STEPS
from lodesman.languages.classad.clauses import Clause, explain, explaining
from lodesman.languages.classad.fast import MatchSide
from lodesman.languages.classad.values import is_true, lower
from lodesman.wire.vocabulary import GateMode

# an ad that comes this long after a pilot was submitted has counted it, or the site counts none
LEDGER_S: Final = 900.0
_ROOM_STEPS: Final = 4 * MOST_STEPS
_NOTHING: Final = MatchSide(EMPTY)


class SiteMatch(NamedTuple):
    """A pilot of ours that was placed at the site."""

    stamp: str
    matched_at: float
    submitted_at: float | None = None  # None until the batch system has taken it for certain
    ended: bool = False  # it has left, or never came there
    joined: bool = False  # it runs, and has said so


class _OurPilots(NamedTuple):
    """Our pilots that the ad does not list."""

    on_way: int = 0  # the ad cannot have counted them
    taken: int = 0  # the batch system had them before the ad came
    recent: int = 0  # of `taken`: for less than the ledger's time
    starting: int = 0  # of `taken`: not running yet


class SiteGate:
    """One site in one iteration; open without an ad. `matches`: in strict mode with those that ended since the ad."""

    def __init__(
        self,
        site: str,
        ad: SiteAd | None,
        *,
        mode: GateMode = GateMode.LEDGER,
        matches: Iterable[SiteMatch] = (),
        now: float,
        ledger_s: float = LEDGER_S,
    ) -> None:
        self.site = site
        self.ad = ad
        self.mode = mode
        self.now = now
        self.matched = 0  # that the ad does not show, those of `take` among them
        self.notice = ""  # what is wrong with the numbers of the ad, and does not shut the gate
        if ad is None:
            return
        rules = ad.rules.get(mode) or ad.rules.setdefault(mode, rules_of(ad.ad, mode))
        self._rules = rules
        self._is_void = not rules.requirements or ad.is_too_old(now)
        self._own: MatchSide | None = None
        self._whole: MatchSide | None = None
        self._ours = _OurPilots()
        if mode is GateMode.STRICT:
            self.matched = sum([match.matched_at >= ad.received_at for match in matches])
            self.notice = _notice(rules.counts)
            return
        self._ours = _ours(matches, ad, ledger_s)
        self.matched = self._ours.on_way + (unshown := self._unshown(ad.others))
        if unshown and not ad.lists_stamps:
            twice = "counts twice" if unshown == 1 else "count twice"
            self.notice = (
                f"its ad lists no PilotStamps, so {unshown} of {counted(self._ours.taken, 'pilot')} {twice}, until its "
                f"counts have risen by as many as were sent and these run, or until an ad comes {ledger_s:,.0f} s after them"
            )

    # --- decisions -----------------------------------------------------------------------------------------------

    def admits(self, request: Ad | MatchSide | None = None) -> bool:
        """Whether it takes a match of this request now; without one, by its own clauses."""
        if self.ad is None:
            return True
        if self._is_void:
            return False
        if request is None:
            shut_at = self._rules.shut_at
            return self._is_open(self.matched) if shut_at is None else self.matched < shut_at
        other = request if isinstance(request, MatchSide) else MatchSide(request)
        return self.side.accepts(other, Run(now=self.now))

    def take(self) -> None:
        """Count a match here."""
        if self.ad is not None:
            self.matched += 1
            if self._whole is not None:
                self._rules.write(self._whole, self.matched)

    def room(self, most: int) -> int:
        """How many more matches its own clauses allow, up to `most` and what a moment can try."""
        if self.ad is None:
            return most
        if self._is_void:
            return 0
        rules, before = self._rules, self.matched
        if rules.shut_at is not None:
            return min(most, max(0, rules.shut_at - before))
        run = Run(now=self.now, most=_ROOM_STEPS)
        for more in range(most):
            run.steps += rules.own_steps
            if run.is_spent or not self._is_open(before + more, run):
                return more
        return most

    @property
    def side(self) -> MatchSide:
        """The site's side of a match, with current numbers."""
        if self.ad is None:
            return _NOTHING
        if self._whole is None:
            self._whole = self._rules.whole.copy()
            self._rules.write(self._whole, self.matched)
        return self._whole

    @property
    def rules(self) -> GateRules | None:
        """None without an ad."""
        return None if self.ad is None else self._rules

    def others(self, before: int | None) -> int | None:
        """The most jobs of others by an ad without stamps. `before`: what the ad before said; while that holds, counts
        rise by our pilots sent and shown.
        """
        total = None if self.ad is None or self.ad.lists_stamps else self._counted()
        if total is None:
            return None
        least = total - self._ours.taken
        most = least + self._ours.recent
        return most if before is None else min(max(before, least), most)

    # --- explanations --------------------------------------------------------------------------------------------

    @property
    def shut(self) -> str:
        """Why it takes nothing at all, '' if it does."""
        if self.ad is None:
            return ""
        if whole := self._whole_answer():
            return whole
        words = next((said(clause) for clause in self._own_clauses() if not is_true(clause.value)), "")
        return f"{words}; {self.notice}" if words and self.mode is GateMode.LEDGER and self.notice else words

    def refusal(self, request: Ad) -> str:
        """Why it does not take this request now, '' if it does."""
        if self.ad is None:
            return ""
        return self._whole_answer() or next(
            (said(clause) for clause in self.clauses(request) if not is_true(clause.value)), ""
        )

    def clauses(self, request: Ad | None = None) -> tuple[Clause, ...]:
        """Each clause with its current value."""
        if self.ad is None or self._rules.requirements is None:
            return ()
        return explain(self._rules.requirements, self.side.ad, request, now=self.now)

    def values(self) -> dict[str, Value]:
        """The current values of the gate's attributes; none without an ad."""
        if self.ad is None:
            return {}
        live = self.side.ad.constants
        return {name: live.get(lower(name), self._rules.counts[lower(name)]) for name in GATE_NAMES}

    # --- numbers -------------------------------------------------------------------------------------------------

    def _whole_answer(self) -> str:
        ad = self.ad
        if ad is not None and ad.is_too_old(self.now):
            return f"its ad is {self.now - ad.received_at:,.0f} s old, older than {ad.lifetime_s:,.0f} s"
        return "" if self._rules.requirements else "its ad has neither Requirements nor limits"

    def _counted(self) -> int | None:
        """All jobs that the ad counts; None if that is no number."""
        total = self._rules.first
        return int(total) if isinstance(total, (int, float)) and not isinstance(total, bool) else None

    def _unshown(self, others: int | None) -> int:
        """Pilots that the batch system took and the ad may not show."""
        total = None if others is None else self._counted()
        if others is None or total is None:
            return self._ours.recent
        return max(self._ours.starting, min(self._ours.recent, others + self._ours.taken - total))

    def _is_open(self, matched: int, run: Run | None = None) -> bool:
        if self._own is None:
            self._own = self._rules.own.copy()
        self._rules.write(self._own, matched)
        return self._own.accepts(_NOTHING, run or Run(now=self.now))

    def _own_clauses(self) -> Iterator[Clause]:
        run = explaining(self.now)
        for node in self._rules.own_clauses:
            yield from explain(node, self.side.ad, run=run)


def _ours(matches: Iterable[SiteMatch], ad: SiteAd, ledger_s: float) -> _OurPilots:
    since, stamps = ad.received_at, ad.stamps
    on_way = in_batch = recent = starting = 0
    for stamp, _, submitted_at, ended, joined in matches:
        if ended or stamp in stamps:
            continue
        if submitted_at is None or submitted_at >= since:
            on_way += 1
            continue
        in_batch += 1
        if since - submitted_at < ledger_s:
            recent += 1
            starting += not joined
    return _OurPilots(on_way, in_batch, recent, starting)


def _notice(counts: Mapping[str, Value]) -> str:
    """For a site that counts less as matched than it has."""
    published, current = counts[CUR_MATCHES], counts["currentjobs"]
    if not is_less(published, current):
        return ""
    return f"its CurMatches = {write_value(published)} is less than CurrentJobs, and counts as {write_value(current)}"


def said(clause: Clause, *, text: str = "") -> str:
    """A clause that is not true, with its values. `text`: how it is shown."""
    text = f"{text or clause.text} is {write_value(clause.value)}"
    if clause.is_dear:
        return f"{text}: it needs too many steps"
    if clause.cycle:
        return f"{text}: {' -> '.join(clause.cycle)} ask for each other"
    values = ", ".join(f"{name} = {write_value(value)}" for name, value in (*clause.own, *clause.other))
    return f"{text}: {values}" if values else text
