"""A place where the results cannot be written is told before anything is started."""

from pathlib import Path

import pytest

from lodesman.demo import run
from lodesman.errors import InvalidRequest


@pytest.mark.parametrize("place", ["/dev/null", "/proc/no-such-place", "/dev/null/below"])
def test_results_that_cannot_be_written(place, monkeypatch):
    started = []
    monkeypatch.setattr(run, "Grid", lambda *_, **__: started.append("grid"))
    with pytest.raises(InvalidRequest, match=f"cannot be written to {place}") as told:
        run.main(results=Path(place))
    assert "--results" in told.value.hint
    assert started == []


def test_the_place_is_made(tmp_path):
    run._need_place(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
