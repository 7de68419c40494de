"""The results of many jobs together: one picture, one estimate, one table. Pure.

A missing part is named: a missing tile stays a grey chequered field, a missing seed or piece is counted. A repeated
part counts once; repeated parts that differ are a fault.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from examples.demo.png import MAX_PIXELS, Image
from msgspec import Meta, Struct

from lodesman.base.errors import LodesmanError

_CHEQUER = 8
_GREYS = (bytes((72, 72, 72)), bytes((96, 96, 96)))
_MAX_PARTS = 1_000_000
_MAX_COUNT = 2**53


class UnfitPart(LodesmanError):
    """The result of one job is unusable or does not fit the others; the message says why."""

    code = "unfit-part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One tile and its place: its number of `tiles`, its corner, the size of the whole picture."""

    index: int
    tiles: int
    left: int
    top: int
    picture: tuple[int, int]
    image: Image

    def __post_init__(self) -> None:
        width, height = self.picture
        if not (0 < width * height <= MAX_PIXELS and width > 0):
            raise UnfitPart(f"a picture of {width} x {height} pixels is not possible")
        if not 0 <= self.index < self.tiles <= _MAX_PARTS:
            raise UnfitPart(f"there is no tile {self.index} of {self.tiles}")
        if not (0 <= self.left <= width - self.image.width and 0 <= self.top <= height - self.image.height):
            raise UnfitPart(f"tile {self.index} lies outside the picture")


class Canvas:
    """Tiles put together; the first tile decides the size of the picture."""

    def __init__(self) -> None:
        self._tiles: dict[int, Tile] = {}

    def add(self, tile: Tile) -> None:
        """Add a tile. Raises UnfitPart for a tile of another picture, or a repeated tile that differs."""
        first = next(iter(self._tiles.values()), tile)
        if (tile.picture, tile.tiles) != (first.picture, first.tiles):
            raise UnfitPart(f"tile {tile.index} belongs to another picture")
        if self._tiles.setdefault(tile.index, tile) != tile:
            raise UnfitPart(f"tile {tile.index} came twice and differs")

    @property
    def found(self) -> int:
        """The number of different tiles."""
        return len(self._tiles)

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of the missing tiles; empty if there is no tile at all."""
        tiles = max((tile.tiles for tile in self._tiles.values()), default=0)
        return tuple(k for k in range(tiles) if k not in self._tiles)

    def image(self) -> Image | None:
        """The picture, chequered grey where tiles are missing; None without any tile."""
        if not self._tiles:
            return None
        width, height = next(iter(self._tiles.values())).picture
        pixels = _chequered(width, height)
        for tile in self._tiles.values():
            at = 3 * (tile.top * width + tile.left)
            for row in tile.image.rows():
                pixels[at : at + len(row)] = row
                at += 3 * width
        return Image(width=width, height=height, pixels=bytes(pixels))


def _chequered(width: int, height: int) -> bytearray:
    rows = [b"".join(_GREYS[(x // _CHEQUER + odd) % 2] for x in range(width)) for odd in (0, 1)]
    return bytearray(b"".join(rows[(y // _CHEQUER) % 2] for y in range(height)))


class PiPart(Struct, frozen=True, kw_only=True):
    """One job's count of random points: `hits` of `samples` lay in the quarter circle."""

    seed: int
    samples: Annotated[int, Meta(ge=1, le=_MAX_COUNT)]
    hits: Annotated[int, Meta(ge=0)]

    def __post_init__(self) -> None:
        if self.hits > self.samples:
            raise ValueError(f"{self.hits} hits of {self.samples} samples are not possible")


class PiEstimate(Struct, frozen=True, kw_only=True):
    """Pi from `samples` points of `parts` seeds; `error` is one standard deviation (0 if no point missed)."""

    value: float
    error: float
    samples: int
    parts: int


def merge_pi(parts: Iterable[PiPart]) -> PiEstimate | None:
    """The estimate of all parts, each seed once; None without parts. 4p, error 4 sqrt(p (1-p) / n)."""
    by_seed = {part.seed: part for part in parts}
    samples = sum(part.samples for part in by_seed.values())
    if not samples:
        return None
    p = sum(part.hits for part in by_seed.values()) / samples
    error = 4 * math.sqrt(p * (1 - p) / samples)
    return PiEstimate(value=4 * p, error=error, samples=samples, parts=len(by_seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPart:
    """The words of piece `piece` of `pieces` of a text."""

    text: str
    piece: int
    pieces: int
    counts: Mapping[str, int]

    def __post_init__(self) -> None:
        if not 0 <= self.piece < self.pieces <= _MAX_PARTS:
            raise UnfitPart(f"there is no piece {self.piece} of {self.pieces}")
        if not all(1 <= count <= _MAX_COUNT for count in self.counts.values()):
            raise UnfitPart(f"piece {self.piece} counts a word an impossible number of times")


class WordTable(Struct, frozen=True, kw_only=True):
    """The words of a text, most frequent first; `missing` pieces are not in it."""

    text: str
    counts: tuple[tuple[str, int], ...]
    total: int
    distinct: int
    pieces: int
    missing: tuple[int, ...]


def merge_words(parts: Iterable[WordPart]) -> WordTable | None:
    """One table from the pieces of one text, each piece once; None without parts.

    Raises UnfitPart unless the parts are pieces of one text, cut in the same way.
    """
    by_piece = {part.piece: part for part in parts}
    kinds = {(part.text, part.pieces) for part in by_piece.values()}
    if not kinds:
        return None
    if len(kinds) > 1:
        raise UnfitPart(f"the pieces are of {len(kinds)} different texts or cuts")
    text, pieces = kinds.pop()
    counts: Counter[str] = Counter()
    for part in by_piece.values():
        counts.update(part.counts)
    return WordTable(
        text=text,
        counts=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        total=counts.total(),
        distinct=len(counts),
        pieces=pieces,
        missing=tuple(k for k in range(pieces) if k not in by_piece),
    )
