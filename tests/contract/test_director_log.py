"""The director's records: the newest are kept, by number and by size."""

from __future__ import annotations

import msgspec
import pytest

from lodesman.server.store import director
from lodesman.server.store.director import last_iteration
from lodesman.server.store.journal import Change


def store(house, size, number=0):
    plan = msgspec.json.encode({"number": number, "text": "x" * size}).decode()
    return house.do(Change(director.insert_iteration, plan))


def kept(house):
    return [row[0] for row in house.reader.execute("SELECT id FROM director_iteration ORDER BY id")]


def test_the_newest_are_kept_by_number(house, monkeypatch):
    monkeypatch.setattr(director, "KEEP_ITERATIONS", 5)
    for number in range(12):
        store(house, 10, number)
        assert len(kept(house)) == min(number + 1, 5)
    assert kept(house) == [8, 9, 10, 11, 12]
    number, at, plan = last_iteration(house.reader)
    assert (number, at, msgspec.json.decode(plan)["number"]) == (12, 1_000.0, 11)


def test_the_newest_are_kept_by_size(house, monkeypatch):
    monkeypatch.setattr(director, "KEEP_BYTES", 10_000)
    for number in range(12):
        store(house, 2_000, number)
    assert kept(house) == [9, 10, 11, 12]


def test_the_newest_few_are_kept_however_large(house, monkeypatch):
    monkeypatch.setattr(director, "KEEP_BYTES", 100)
    for number in range(6):
        store(house, 1_000, number)
    assert kept(house) == [4, 5, 6]


def test_room_comes_back_when_they_are_small_again(house, monkeypatch):
    monkeypatch.setattr(director, "KEEP_BYTES", 5_000)
    for size in (4_000, 4_000, 10, 10, 10, 10):
        store(house, size)
    assert kept(house) == [2, 3, 4, 5, 6]


@pytest.mark.slow
def test_all_that_is_kept_is_a_few_tens_of_megabytes(house):
    assert director.KEEP_BYTES <= 64 << 20
    for number in range(12):
        store(house, 8 << 20, number)
    (stored,) = house.reader.execute("SELECT sum(bytes) FROM director_iteration").fetchone()
    assert stored <= director.KEEP_BYTES
    assert len(kept(house)) == 7


@pytest.mark.sqlite
def test_sizes_are_read_without_the_texts(house):
    """In front of the text on its page: reading 200 sizes does not mean reading 64 MB."""
    columns = [row[1] for row in house.reader.execute("PRAGMA table_info(director_iteration)")]
    assert columns.index("bytes") < columns.index("plan")
