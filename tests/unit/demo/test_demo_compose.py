"""Reading what jobs brought back: whole, missing, broken and hostile files."""

from __future__ import annotations

import json

import pytest
from examples.demo.compose import compose, read_pi_part, read_tile, read_word_part
from examples.demo.merge import PiPart, UnfitPart, WordPart
from examples.demo.png import Image, read_png, write_png

PLACE = {"index": 0, "tiles": 2, "left": 0, "top": 0, "picture": [4, 2]}
WORDS = b"# piece 1 of 3 of GPL-3, lines 5 to 9, words 4\nfree\t3\nsoftware\t1\n"


def tile_file(*, colour=b"abc", **place) -> bytes:
    texts = {"Tile": json.dumps({**PLACE, **place})}
    return write_png(Image(width=2, height=2, pixels=colour * 4, texts=texts))


def put(results, job, name, data) -> None:
    folder = results / str(job)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def pi_file(seed, hits=3) -> str:
    return json.dumps({"seed": seed, "samples": 4, "hits": hits})


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


def test_tiles_become_a_picture_on_disk(results, tmp_path):
    put(results, 1, "tile_000.png", tile_file(colour=b"one"))
    put(results, 2, "tile_001.png", tile_file(colour=b"two", index=1, left=2))
    got = compose(results, {"picture": [1, 2]}, tmp_path / "out").picture
    assert (got.path, got.width, got.height, got.found, got.missing) == (
        tmp_path / "out" / "picture.png",
        4,
        2,
        2,
        (),
    )
    assert read_png(got.path.read_bytes()).pixels == (b"one" * 2 + b"two" * 2) * 2


def test_a_missing_tile_is_missing(results, tmp_path):
    put(results, 2, "tile_001.png", tile_file(index=1, left=2))
    got = compose(results, {"picture": [1, 2]}, tmp_path / "out")
    assert (got.picture.found, got.picture.missing) == (1, (0,))
    assert got.unheard["picture"] == 1
    assert got.faults == ()


def test_without_a_tile_there_is_no_picture_file(results, tmp_path):
    got = compose(results, {"picture": [1, 2]}, tmp_path / "out")
    assert got.picture.path is None
    assert got.unheard["picture"] == 2
    assert list((tmp_path / "out").iterdir()) == []


def test_a_composer_without_jobs_has_no_result(results, tmp_path):
    got = compose(results, {}, tmp_path / "out")
    assert (got.picture, got.pi, got.words, got.words_path, got.faults) == (None, None, None, None, ())


def test_only_the_named_jobs_are_read(results, tmp_path):
    put(results, 1, "pi.json", pi_file(1))
    put(results, 99, "pi.json", pi_file(2))
    assert compose(results, {"pi": [1]}, tmp_path / "out").pi.samples == 4


def test_broken_and_foreign_files_are_left_out_and_named(results, tmp_path):
    put(results, 1, "tile_000.png", tile_file()[:-9])
    put(results, 2, "tile_001.png", tile_file(index=1, left=2))
    put(results, 3, "tile_001.png", tile_file(index=1, left=2, colour=b"odd"))
    put(results, 4, "tile_002.png", write_png(Image(width=1, height=1, pixels=b"abc")))
    got = compose(results, {"picture": [1, 2, 3, 4]}, tmp_path / "out")
    assert got.picture.found == 1
    assert got.faults == (
        "job 1: tile_000.png: it is cut off",
        "job 3: tile_001.png: tile 1 came twice and differs",
        "job 4: tile_002.png: the PNG does not say where it belongs",
    )


def test_a_directory_in_place_of_a_result_is_a_fault(results, tmp_path):
    (results / "1" / "pi.json").mkdir(parents=True)
    got = compose(results, {"pi": [1]}, tmp_path / "out")
    assert got.pi is None
    assert got.faults[0].startswith("job 1: pi.json: ")


def test_the_estimate_is_merged_and_written(results, tmp_path):
    put(results, 1, "pi.json", pi_file(1, hits=4))
    put(results, 2, "pi.json", pi_file(2, hits=2))
    got = compose(results, {"pi": [1, 2, 3]}, tmp_path / "out")
    assert (got.pi.value, got.pi.samples, got.pi.parts) == (3.0, 8, 2)
    assert got.unheard["pi"] == 1
    written = json.loads((tmp_path / "out" / "pi.json").read_text())
    assert written == {"value": 3.0, "error": got.pi.error, "samples": 8, "parts": 2}


def test_one_seed_counts_once_and_the_second_is_named(results, tmp_path):
    put(results, 1, "pi.json", pi_file(1, hits=4))
    put(results, 2, "pi.json", pi_file(1, hits=1))
    got = compose(results, {"pi": [1, 2]}, tmp_path / "out")
    assert got.pi.value == 4.0
    assert got.faults == ("job 2: pi.json: seed 1 came already",)


def test_words_are_merged_and_written(results, tmp_path):
    put(results, 1, "words.tsv", WORDS)
    put(results, 2, "words.tsv", WORDS.replace(b"piece 1", b"piece 0"))
    got = compose(results, {"words": [1, 2]}, tmp_path / "out")
    assert (got.words.total, got.words.distinct, got.words.missing) == (8, 2, (2,))
    assert got.words_path.read_text() == "free\t6\nsoftware\t2\n"


def test_pieces_of_two_texts_are_not_mixed(results, tmp_path):
    put(results, 1, "words.tsv", WORDS)
    put(results, 2, "words.tsv", WORDS.replace(b"GPL-3", b"GPL-2").replace(b"piece 1", b"piece 0"))
    got = compose(results, {"words": [1, 2]}, tmp_path / "out")
    assert got.words is None
    assert got.faults == ("words: the pieces are of 2 different texts or cuts",)


def test_nothing_half_written_stays(results, tmp_path):
    put(results, 1, "pi.json", pi_file(1))
    compose(results, {"pi": [1]}, tmp_path / "out")
    compose(results, {"pi": [1]}, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["pi.json"]


def test_one_part_of_pi():
    assert read_pi_part(b'{"seed": 1, "samples": 4, "hits": 3}') == PiPart(seed=1, samples=4, hits=3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b"\xff\xfe\x00",
        b'{"seed": 1, "samples": 4}',
        b'{"seed": 1, "samples": 4.0, "hits": 3}',
        b'{"seed": 1, "samples": true, "hits": 0}',
        b'{"seed": 1, "samples": "4", "hits": 3}',
        b'{"seed": 1, "samples": 4, "hits": 5}',
        b'{"seed": 1, "samples": NaN, "hits": 5}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_part_of_pi_is_refused(data):
    with pytest.raises(UnfitPart):
        read_pi_part(data)


def test_one_piece_of_words():
    counts = {"free": 3, "software": 1}
    assert read_word_part(WORDS) == WordPart(text="GPL-3", piece=1, pieces=3, counts=counts)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"free\t3\n",
        b"\xff" + WORDS,
        WORDS.replace(b"words 4", b"words 5"),
        WORDS.replace(b"\t1", b""),
        WORDS.replace(b"\t1", b"\tone"),
        WORDS.replace(b"\t3", b"\t-3"),
        WORDS.replace(b"piece 1", b"piece 3"),
        WORDS[: WORDS.index(b"soft")],
    ],
)
def test_what_is_no_piece_of_words_is_refused(data):
    with pytest.raises(UnfitPart):
        read_word_part(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({**PLACE, "picture": 7}),
        json.dumps({**PLACE, "picture": [4]}),
        json.dumps({**PLACE, "picture": [4, 2, 1]}),
        json.dumps({**PLACE, "left": "0"}),
        json.dumps({**PLACE, "index": None}),
        json.dumps({**PLACE, "left": 3}),
        json.dumps({key: PLACE[key] for key in PLACE if key != "top"}),
    ],
)
def test_a_tile_that_does_not_say_where_it_belongs_is_refused(text):
    with pytest.raises(UnfitPart):
        read_tile(write_png(Image(width=2, height=2, pixels=bytes(12), texts={"Tile": text})))


@pytest.mark.slow
def test_a_file_beyond_the_limit_is_not_read(results, tmp_path):
    folder = results / "1"
    folder.mkdir(parents=True)
    with (folder / "pi.json").open("wb") as sparse:
        sparse.truncate(65 * 2**20)
    got = compose(results, {"pi": [1]}, tmp_path / "out")
    assert got.faults == ("job 1: pi.json: it is larger than 64 MB",)
