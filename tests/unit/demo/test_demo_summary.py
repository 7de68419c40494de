"""The one-screen summary: what it says, that it fits, and that it makes nothing up."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from examples.demo.compose import Composition, Picture
from examples.demo.merge import PiEstimate, WordTable
from examples.demo.report import AttemptCheck, DemoReport, GroupShare, Reason, SiteRow
from examples.demo.summary import HEIGHT, WIDTH, summary_lines, summary_text, summary_view
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from lodesman.wire.server import Spread

PICTURE = Picture(path=Path("demo-results/picture.png"), width=900, height=600, found=96)
WORDS = WordTable(
    text="GPL-3",
    counts=(("the", 345), ("of", 221), ("to", 192), ("a", 184), ("or", 151), ("you", 128), ("x", 3)),
    total=1224,
    distinct=7,
    pieces=48,
    missing=(),
)
STATES = {"Done": 210, "Failed": 6, "Held": 4}
COMPOSITION = Composition(
    picture=PICTURE,
    pi=PiEstimate(value=3.1415123, error=0.0001429, samples=132_000_000, parts=66),
    words=WORDS,
    unheard={"picture": 0, "pi": 0, "words": 0},
)
REPORT = DemoReport(
    states=STATES,
    expected={"Failed": 6, "Done": 210, "Held": 4},
    elapsed_seconds=61.4,
    first_result_seconds=2.34,
    sites=[
        SiteRow(site="HPC.East.local", done=52, failed=1, pilots=3, cpu_seconds=17.2),
        SiteRow(site="LCG.North.local", done=80, failed=3, pilots=2, cpu_seconds=20.9),
        SiteRow(site="LCG.South.local", done=78, failed=2, pilots=None, cpu_seconds=None),
    ],
    waiting=Spread(count=216, p50=21.4, p90=None, p95=48.8, p99=None, most=55.2),
    running=Spread(count=216, p50=0.31, p90=None, p95=0.84, p99=None, most=3.4),
    groups=[
        GroupShare(group="bio", share=1000, actual=59, target=57.24, deviation=0.27),
        GroupShare(group="physics", share=3000, actual=157, target=158.76, deviation=-0.27),
    ],
    held=[
        Reason(text="no queue of VO gridlab fulfils the Requirements: Memory", count=2, example=217),
        Reason(text="no queue of VO gridlab can run it: CPUTime excludes 3 of 3", count=1, example=220),
    ],
    failed=[
        Reason(text="exit code 3", count=3, example=211),
        Reason(text="CPU time over the limit of 3 s", count=1, example=216),
    ],
    attempts=AttemptCheck(started=216, attempts=216, twice=0, lost=0),
    composition=COMPOSITION,
    results=Path("demo-results"),
)
SCREEN = """\
Lodesman demo: 220 jobs in 61 s, first result after 2.34 s
States: 210 Done, 6 Failed, 4 Held, as expected

Site                                 Pilots       Done     Failed     CPU time
HPC.East.local                            3         52          1         17 s
LCG.North.local                           2         80          3         21 s
LCG.South.local                     unknown         78          2      unknown

Time                                   jobs        p50        p95          max
waiting for a pilot                     216       21 s       49 s         55 s
running                                 216     0.31 s     0.84 s       3.40 s

Group                share     starts     actual     target      deviation
bio                  1,000         59     27.3 %     26.5 %      0.3 sigma
physics              3,000        157     72.7 %     73.5 %     -0.3 sigma

Held         2 no queue of VO gridlab fulfils the Requirements: Memory (job 217)
             1 CPUTime excludes 3 of 3 (job 220)
Failed       3 exit code 3 (job 211)
             1 CPU time over the limit of 3 s (job 216)
Picture  demo-results/picture.png, 900 x 600, 96 tiles
Pi       3.141512 +- 0.000143 (132,000,000 points of 66 jobs)
Words    the 345, of 221, to 192, a 184, or 151, you 128 (1,224 words of GPL-3)
Attempts 216 jobs started, 216 attempts, 0 ran twice, 0 jobs lost
Results  demo-results/
"""
NOTHING = """\
Lodesman demo: unknown jobs in unknown
States: unknown

Site                                 Pilots       Done     Failed     CPU time
unknown

Time                                   jobs        p50        p95          max
waiting for a pilot                 unknown    unknown    unknown      unknown
running                             unknown    unknown    unknown      unknown

Group                share     starts     actual     target      deviation
unknown

Held     unknown
Failed   unknown
Picture  unknown
Pi       unknown
Words    unknown
Attempts unknown
Results  unknown
"""


def line_of(report: DemoReport, label: str) -> str:
    return next(line.plain for line in summary_lines(report) if line.plain.startswith(label))


def style_of(report: DemoReport, label: str) -> str:
    return next(str(line.style) for line in summary_lines(report) if line.plain.startswith(label))


def test_the_screen():
    assert summary_text(REPORT) == SCREEN


def test_nothing_known():
    assert summary_text(DemoReport(states=None)) == NOTHING


def test_no_jobs_at_all():
    report = DemoReport(
        states={}, expected={}, elapsed_seconds=0.0, held=[], failed=[], composition=Composition(unheard={})
    )
    assert line_of(report, "Lodesman") == "Lodesman demo: 0 jobs in 0.00 s"
    assert line_of(report, "States") == "States: no jobs, as expected"
    assert line_of(report, "Held") == "Held     none"
    assert line_of(report, "Picture") == "Picture  no tile came"
    assert line_of(report, "Pi ") == "Pi       unknown"


def test_an_unexpected_outcome_is_red():
    report = replace(REPORT, states={"Done": 209, "Killed": 1, "Failed": 6, "Held": 4, "Odd": 1})
    assert line_of(report, "States") == (
        "States: 209 Done, 6 Failed, 1 Killed, 4 Held, 1 Odd; expected 210 Done, 6 Fai..."
    )
    assert style_of(report, "States") == "red"
    assert style_of(REPORT, "States") == "green"


def test_zero_counts_are_no_difference():
    assert style_of(replace(REPORT, states={**STATES, "Running": 0}), "States") == "green"


def test_an_interrupted_demo_says_so():
    report = replace(REPORT, interrupted=True, first_result_seconds=None)
    assert line_of(report, "Lodesman") == "Lodesman demo: 220 jobs interrupted after 61 s"


@pytest.mark.parametrize(
    ("check", "style"),
    [
        (AttemptCheck(started=5, attempts=6, twice=0, lost=0), "green"),
        (AttemptCheck(started=5, attempts=6, twice=1, lost=0), "bold red"),
        (AttemptCheck(started=5, attempts=6, twice=0, lost=2), "bold red"),
        (AttemptCheck(started=5, attempts=None, twice=None, lost=None), ""),
        (AttemptCheck(started=5, attempts=6, twice=0, lost=None), ""),
        (None, ""),
    ],
)
def test_only_a_proven_exactly_once_is_green(check, style):
    assert style_of(replace(REPORT, attempts=check), "Attempts") == style


def test_missing_parts_are_reported():
    composition = replace(
        COMPOSITION,
        picture=replace(PICTURE, found=94, missing=(3, 17)),
        words=replace(WORDS, missing=(5,)),
        unheard={"pi": 4},
        faults=("job 17: tile_003.png: it is cut off", "job 18: words.tsv: it is not a table of words"),
    )
    report = replace(REPORT, composition=composition)
    assert line_of(report, "Picture").endswith("94 tiles, 2 missing")
    assert style_of(report, "Picture") == "yellow"
    assert "4 without result" in line_of(report, "Pi ")
    assert "1 of 48 pieces missing" in line_of(report, "Words")
    assert line_of(report, "Faults").endswith("2 results left out: job 17: tile_003.png: it is cut off")


def test_more_rows_than_fit_are_counted():
    many = [Reason(text=f"exit code {k}", count=k, example=k) for k in range(20, 0, -1)]
    sites = [SiteRow(site=f"S{k}", done=k, failed=0) for k in range(20)]
    groups = [GroupShare(group=f"g{k}", share=1, actual=1, target=None) for k in range(9)]
    text = summary_text(replace(REPORT, sites=sites, groups=groups, held=many, failed=many))
    assert "and 14 more sites" in text
    assert "and 5 more groups" in text
    assert f"and {sum(range(1, 18))} jobs for 17 more reasons" in text
    assert f"and {sum(range(1, 16))} jobs for 15 more reasons" in text
    assert len(text.splitlines()) <= HEIGHT


def test_texts_of_jobs_cannot_steer_the_terminal():
    nasty = [Reason(text="\x1b[2J\x1b]0;gotcha\x07 [bold]markup[/bold]\nFailed none", count=1)]
    text = summary_text(replace(REPORT, failed=nasty))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]markup[/bold] Failed none" in text


def test_a_long_path_keeps_its_end():
    picture = replace(PICTURE, path=Path("/very" * 40 + "/picture.png"))
    line = line_of(replace(REPORT, composition=replace(COMPOSITION, picture=picture)), "Picture")
    assert "very/picture.png, 900 x 600, 96 tiles" in line
    assert "..." in line


def test_the_view_for_rich_says_the_same():
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, color_system=None)
    console.print(summary_view(REPORT))
    assert file.getvalue() == SCREEN


def test_everything_is_ascii():
    assert summary_text(REPORT).isascii()


counts = st.none() | st.integers(0, 10**30)
times = st.none() | st.floats(allow_nan=True) | st.just(math.inf)
texts = st.text(max_size=200)
spreads = st.none() | st.builds(
    Spread, count=st.integers(0, 10**18), p50=times, p90=times, p95=times, p99=times, most=times
)
parts = st.lists(st.integers(0, 999), max_size=30).map(tuple)
pictures = st.builds(
    Picture,
    path=st.none() | texts.map(lambda t: Path(t.replace("\0", ""))),
    width=st.integers(0, 10**6),
    height=st.integers(0, 10**6),
    found=st.integers(0, 10**6),
    missing=parts,
)
tables = st.builds(
    WordTable,
    text=texts,
    counts=st.lists(st.tuples(texts, st.integers(1, 10**18)), max_size=9).map(tuple),
    total=st.integers(0, 10**30),
    distinct=st.integers(0, 10**18),
    pieces=st.integers(0, 10**6),
    missing=parts,
)
estimates = st.builds(
    PiEstimate, value=st.floats(0, 4), error=st.floats(0, 2), samples=st.integers(1, 10**30), parts=counts
)
reason_lists = st.none() | st.lists(
    st.builds(Reason, text=texts, count=st.integers(1, 10**30), example=counts), max_size=12
)
reports = st.builds(
    DemoReport,
    states=st.none() | st.dictionaries(texts, st.integers(0, 10**30), max_size=8),
    expected=st.none() | st.dictionaries(texts, st.integers(0, 10**30), max_size=8),
    elapsed_seconds=times,
    first_result_seconds=times,
    sites=st.lists(
        st.builds(SiteRow, site=texts, done=counts, failed=counts, pilots=counts, cpu_seconds=times),
        max_size=9,
    ),
    waiting=spreads,
    running=spreads,
    groups=st.lists(
        st.builds(
            GroupShare,
            group=texts,
            share=st.floats(0, 1e12),
            actual=st.integers(0, 10**15),
            target=times,
            deviation=times,
        ),
        max_size=9,
    ),
    held=reason_lists,
    failed=reason_lists,
    attempts=st.none() | st.builds(AttemptCheck, started=counts, attempts=counts, twice=counts, lost=counts),
    composition=st.none()
    | st.builds(
        Composition,
        picture=st.none() | pictures,
        pi=st.none() | estimates,
        words=st.none() | tables,
        faults=st.lists(texts, max_size=3).map(tuple),
        unheard=st.dictionaries(st.sampled_from(["pi", "picture", "words"]), st.integers(0, 10**12)),
    ),
    results=st.none() | texts.map(lambda t: Path(t.replace("\0", ""))),
)


@given(reports)
def test_any_report_fits_the_screen(report):
    lines = summary_lines(report)
    assert len(lines) <= HEIGHT
    assert all(len(line.plain) <= WIDTH for line in lines)
    assert all(line.plain.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (216, "216 jobs started, 216 attempts, 0 ran twice, 0 jobs lost"),
        (215, "216 jobs started, 216 attempts (pilots saw 215), 0 ran twice, 0 lost"),
    ],
)
def test_differing_records_of_the_pilots_are_shown(seen, said):
    check = AttemptCheck(started=216, attempts=216, twice=0, lost=0, seen=seen)
    assert f"Attempts {said}\n" in summary_text(replace(REPORT, attempts=check))


def test_one_that_was_interrupted_early_shows_no_screen_of_unknowns():
    report = replace(REPORT, interrupted=True, states=None)
    (line,) = summary_lines(report)
    assert line.plain == "Lodesman demo: interrupted after 61 s, before there were results"
