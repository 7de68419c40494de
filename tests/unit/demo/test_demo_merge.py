"""Joining tiles, adding up estimates and tables; parts that are missing or do not fit."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from examples.demo.compose import read_pi_part
from examples.demo.merge import Canvas, PiPart, Tile, UnfitPart, WordPart, merge_pi, merge_words
from examples.demo.png import Image
from hypothesis import given
from hypothesis import strategies as st


def tile(index, *, left, top=0, colour=b"\xff\x00\x00", tiles=4, picture=(40, 10), size=(10, 10)) -> Tile:
    image = Image(width=size[0], height=size[1], pixels=colour * (size[0] * size[1]))
    return Tile(index=index, tiles=tiles, left=left, top=top, picture=picture, image=image)


def pixel(image, x, y) -> bytes:
    at = 3 * (y * image.width + x)
    return image.pixels[at : at + 3]


def test_tiles_land_where_they_belong():
    canvas = Canvas()
    for k, colour in enumerate((b"aaa", b"bbb", b"ccc", b"ddd")):
        canvas.add(tile(k, left=10 * k, colour=colour))
    image = canvas.image()
    assert (image.width, image.height, canvas.missing, canvas.found) == (40, 10, (), 4)
    for k, colour in enumerate((b"aaa", b"bbb", b"ccc", b"ddd")):
        assert {pixel(image, x, y) for x in range(10 * k, 10 * k + 10) for y in range(10)} == {colour}


def test_a_missing_tile_is_named_and_stays_a_grey_chequered_field():
    canvas = Canvas()
    for k in (0, 1, 3):
        canvas.add(tile(k, left=10 * k))
    image = canvas.image()
    hole = {pixel(image, x, y) for x in range(20, 30) for y in range(10)}
    assert canvas.missing == (2,)
    assert len(hole) == 2
    assert all(red == green == blue for red, green, blue in hole)


def test_without_any_tile_there_is_no_picture():
    canvas = Canvas()
    assert canvas.image() is None
    assert canvas.missing == ()
    assert canvas.found == 0


def test_the_same_tile_twice_counts_once():
    canvas = Canvas()
    canvas.add(tile(0, left=0))
    canvas.add(tile(0, left=0))
    assert canvas.found == 1


def test_a_differing_twin_is_refused_and_the_first_stays():
    canvas = Canvas()
    canvas.add(tile(0, left=0, colour=b"one"))
    with pytest.raises(UnfitPart, match="twice"):
        canvas.add(tile(0, left=0, colour=b"two"))
    assert pixel(canvas.image(), 0, 0) == b"one"


@pytest.mark.parametrize("other", [{"picture": (50, 10)}, {"tiles": 5}])
def test_a_tile_of_another_picture_is_refused(other):
    canvas = Canvas()
    canvas.add(tile(0, left=0))
    with pytest.raises(UnfitPart, match="another picture"):
        canvas.add(tile(1, left=10, **other))
    assert canvas.found == 1


@pytest.mark.parametrize(
    "place",
    [
        {"left": 31},
        {"left": -1},
        {"left": 0, "top": 1},
        {"left": 0, "top": -5},
        {"left": 0, "tiles": 3, "index": 3},
        {"left": 0, "index": -1},
        {"left": 0, "picture": (0, 10)},
        {"left": 0, "picture": (-40, -10)},
        {"left": 0, "picture": (10**6, 10**6)},
        {"left": 0, "tiles": 10**9},
    ],
)
def test_impossible_places_are_refused(place):
    with pytest.raises(UnfitPart):
        tile(place.pop("index", 0), **place)


def test_pi_is_four_times_the_part_inside_and_has_its_error():
    estimate = merge_pi([PiPart(seed=1, samples=400, hits=300), PiPart(seed=2, samples=600, hits=480)])
    assert estimate.value == pytest.approx(4 * 0.78)
    assert estimate.error == pytest.approx(4 * math.sqrt(0.78 * 0.22 / 1000))
    assert (estimate.samples, estimate.parts) == (1000, 2)


def test_pi_of_nothing_is_unknown():
    assert merge_pi([]) is None


def test_the_same_seed_counts_once():
    part = PiPart(seed=1, samples=100, hits=80)
    assert merge_pi([part, part]) == merge_pi([part])


@pytest.mark.parametrize(("samples", "hits"), [(0, 0), (-1, -1), (10, 11), (10, -1), (10**400, 1)])
def test_impossible_counts_are_refused(samples, hits):
    with pytest.raises(UnfitPart):
        read_pi_part(json.dumps({"seed": 1, "samples": samples, "hits": hits}).encode())


@given(st.lists(st.tuples(st.integers(1, 10**12), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_estimate_lies_between_its_parts(parts):
    values = [PiPart(seed=k, samples=n, hits=int(n * p)) for k, (n, p) in enumerate(parts)]
    estimate = merge_pi(values)
    each = [4 * part.hits / part.samples for part in values]
    assert min(each) - 1e-9 <= estimate.value <= max(each) + 1e-9
    assert 0 <= estimate.error <= 2 / math.sqrt(estimate.samples) + 1e-12


def piece(k, counts, *, pieces=2, text="GPL-3") -> WordPart:
    return WordPart(text=text, piece=k, pieces=pieces, counts=counts)


def test_words_are_added_up_and_sorted_by_count_then_name():
    table = merge_words([piece(0, {"the": 3, "a": 1}), piece(1, {"the": 1, "of": 4, "b": 1})])
    assert table.counts == (("of", 4), ("the", 4), ("a", 1), ("b", 1))
    assert (table.total, table.distinct, table.missing, table.text) == (10, 4, (), "GPL-3")


def test_missing_pieces_are_named():
    table = merge_words([piece(2, {"the": 3}, pieces=5), piece(0, {}, pieces=5)])
    assert table.missing == (1, 3, 4)


def test_a_piece_that_came_twice_counts_once():
    assert merge_words([piece(0, {"the": 3})] * 3).total == 3


def test_pieces_of_different_texts_are_not_added_up():
    with pytest.raises(UnfitPart, match="different"):
        merge_words([piece(0, {"the": 3}), piece(1, {"the": 3}, text="GPL-2")])
    with pytest.raises(UnfitPart, match="different"):
        merge_words([piece(0, {"the": 3}), piece(1, {"the": 3}, pieces=7)])


def test_no_words_of_nothing():
    assert merge_words([]) is None


@pytest.mark.parametrize("wrong", [{"piece": 2}, {"piece": -1}, {"counts": {"a": 0}}, {"counts": {"a": -2}}])
def test_impossible_pieces_are_refused(wrong):
    with pytest.raises(UnfitPart):
        WordPart(**{"text": "t", "piece": 0, "pieces": 2, "counts": {}, **wrong})


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=20), min_size=1, max_size=8))
def test_cut_and_merged_is_the_same_as_counted_at_once(pieces):
    parts = [piece(k, Counter(words), pieces=len(pieces)) for k, words in enumerate(pieces)]
    whole = Counter(word for words in pieces for word in words)
    assert dict(merge_words(parts).counts) == dict(whole)
