"""Read the results of the example workload and combine them.

A result directory holds one directory per job, named by its id: `results/17/tile_003.png`. A file
that is unusable is reported with its job and the reason, and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from examples.demo.merge import (
    Canvas,
    PiEstimate,
    PiPart,
    Tile,
    UnfitPart,
    WordPart,
    WordTable,
    merge_pi,
    merge_words,
)
from examples.demo.png import UnreadablePng, read_png, write_png
from msgspec import Struct

_MAX_BYTES = 64 * 2**20
_WORDS_HEAD = re.compile(r"# piece (\d+) of (\d+) of (.+), lines \d+ to \d+, words (\d+)", re.ASCII)
_P = TypeVar("_P")


class Picture(Struct, frozen=True, kw_only=True):
    """The joined picture; `path` is None without any tile, `missing` are numbers of tiles."""

    path: Path | None
    width: int = 0
    height: int = 0
    found: int = 0
    missing: tuple[int, ...] = ()


class Composition(Struct, frozen=True, kw_only=True):
    """All results together. `faults` names each unusable file and why.

    `unheard` counts, for each composer, the jobs without any file for it.
    """

    picture: Picture | None = None
    pi: PiEstimate | None = None
    words: WordTable | None = None
    words_path: Path | None = None
    faults: tuple[str, ...] = ()
    unheard: dict[str, int]


class _Place(Struct):
    """Where a tile belongs, as its PNG says."""

    picture: tuple[int, int]
    index: int
    tiles: int
    left: int
    top: int


def compose(results: Path, members: Mapping[str, Sequence[int]], target: Path) -> Composition:
    """Put the results together and write `picture.png`, `pi.json` and `words.tsv` below `target`.

    `members` maps a composer (`picture`, `pi`, `words`) to the ids of its jobs. Raises OSError if `target` cannot be
    written.
    """
    target.mkdir(parents=True, exist_ok=True)
    reader = _Reader(results)
    picture = _picture(reader, members.get("picture", ()), target)
    pi = merge_pi(_first_of_each(reader.read("pi", members.get("pi", ()), "pi.json", read_pi_part), reader))
    if pi is not None:
        _write(target / "pi.json", msgspec.json.format(msgspec.json.encode(pi), indent=1) + b"\n")
    words, words_path = _words(reader, members.get("words", ()), target)
    return Composition(
        picture=picture,
        pi=pi,
        words=words,
        words_path=words_path,
        faults=tuple(reader.faults),
        unheard=reader.unheard,
    )


def read_tile(data: bytes) -> Tile:
    """A tile from the PNG that the tile program writes. Raises UnreadablePng or UnfitPart."""
    image = read_png(data)
    try:
        place = msgspec.json.decode(image.texts.get("Tile", ""), type=_Place)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnfitPart("the PNG does not say where it belongs") from error
    return Tile(image=image, **msgspec.structs.asdict(place))


def read_pi_part(data: bytes) -> PiPart:
    """One `pi.json`. Raises UnfitPart."""
    try:
        return msgspec.json.decode(data, type=PiPart)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise UnfitPart("it is not a JSON record of seed, samples and hits") from error


def read_word_part(data: bytes) -> WordPart:
    """One `words.tsv`. Raises UnfitPart, also when the counts do not add up to the number in its head."""
    try:
        head, *lines = data.decode("ascii").splitlines()
        found = _WORDS_HEAD.fullmatch(head)
        if found is None:
            raise UnfitPart("its head does not say which piece it is")
        piece, pieces, text, total = found.groups()
        counts = {word: int(count) for word, count in (line.split("\t") for line in lines)}
        part = WordPart(text=text, piece=int(piece), pieces=int(pieces), counts=counts)
        whole = int(total)
    except ValueError as error:
        raise UnfitPart("it is not a table of words") from error
    if sum(counts.values()) != whole:
        raise UnfitPart("the counts do not add up to the number of words in its head")
    return part


class _Reader:
    """Reads the files of jobs; collects what is unusable."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self.faults: list[str] = []
        self.unheard: dict[str, int] = {}

    def read(
        self, composer: str, jobs: Sequence[int], pattern: str, parse: Callable[[bytes], _P]
    ) -> Iterator[tuple[str, _P]]:
        """The part of each usable file, with the name of the file for messages."""
        self.unheard[composer] = 0
        for job in jobs:
            files = sorted((self._results / str(job)).glob(pattern))
            self.unheard[composer] += not files
            for path in files:
                name = f"job {job}: {path.name}"
                try:
                    yield name, parse(_bounded(path))
                except (UnfitPart, UnreadablePng, OSError) as error:
                    self.faults.append(f"{name}: {error}")


def _bounded(path: Path) -> bytes:
    with path.open("rb") as source:
        data = source.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise UnfitPart(f"it is larger than {_MAX_BYTES >> 20} MB")
    return data


def _first_of_each(parts: Iterator[tuple[str, PiPart]], reader: _Reader) -> Iterator[PiPart]:
    """Each seed once: the same random points must not count twice."""
    seen: set[int] = set()
    for name, part in parts:
        if part.seed in seen:
            reader.faults.append(f"{name}: seed {part.seed} came already")
        else:
            seen.add(part.seed)
            yield part


def _picture(reader: _Reader, jobs: Sequence[int], target: Path) -> Picture | None:
    if not jobs:
        return None
    canvas = Canvas()
    for name, tile in reader.read("picture", jobs, "tile_*.png", read_tile):
        try:
            canvas.add(tile)
        except UnfitPart as error:
            reader.faults.append(f"{name}: {error}")
    image = canvas.image()
    if image is None:
        return Picture(path=None)
    path = target / "picture.png"
    _write(path, write_png(image))
    return Picture(
        path=path, width=image.width, height=image.height, found=canvas.found, missing=canvas.missing
    )


def _words(reader: _Reader, jobs: Sequence[int], target: Path) -> tuple[WordTable | None, Path | None]:
    parts = [part for _, part in reader.read("words", jobs, "words.tsv", read_word_part)]
    try:
        table = merge_words(parts)
    except UnfitPart as error:
        reader.faults.append(f"words: {error}")
        return None, None
    if table is None:
        return None, None
    path = target / "words.tsv"
    _write(path, "".join(f"{word}\t{count}\n" for word, count in table.counts).encode())
    return table, path


def _write(path: Path, data: bytes) -> None:
    """All or nothing: a reader never sees half a file."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(data)
    draft.replace(path)
