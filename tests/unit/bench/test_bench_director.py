"""The director's row, small: it measures, it checks, and it finds a wrong placement."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from bench import world
from bench.oracle import WrongAnswer
from bench.rows import director
from bench.world import Size

SMALL = Size(queues=40, jobs=400, rows=0, pilots=5)


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A context whose only world is small."""
    monkeypatch.setattr(world, "SITES", 500)
    monkeypatch.setattr(director, "ROUNDS", 2)

    def build(size):
        assert size == SMALL
        world.build(tmp_path / "world", size)
        return tmp_path / "world"

    return SimpleNamespace(
        less=lambda full, least=1: max(full // 10, min(full, least)), size=lambda **_: SMALL, world=build,
        drop=lambda _: None,
    )  # fmt: skip


@pytest.mark.slow
def test_it_measures_and_checks(context):
    figure, gated = director.measure(context)
    assert (gated.row, gated.unit, len(gated.samples)) == ("director-gates", "x", 4)
    assert gated.value > 0
    assert (figure.row, figure.unit, figure.less, figure.floor) == ("director", "s", True, None)
    assert len(figure.samples) == 2
    assert figure.details["placed"] > 0
    assert figure.details["pairs_checked"] > figure.details["placed"]


def test_a_batch_system_that_is_asked_on_the_director_s_thread_is_found():
    with pytest.raises(WrongAnswer, match="on its own thread: census"):
        director._Idle().backend.census()


@pytest.mark.slow
def test_a_placement_that_does_not_fit_is_found(context, monkeypatch):
    monkeypatch.setattr(director, "explain", lambda _key, _request: ("a reason",))
    with pytest.raises(WrongAnswer, match="cannot run jobs"):
        director.measure(context)
