"""A small part of PNG: 8 bit RGB, no interlacing, text chunks. Pure.

Tiles come from jobs, so nothing in them is trusted: sizes are limited before anything is unpacked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lodesman.base.errors import LodesmanError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 16_000_000
_RGB_8_BIT = (8, 2, 0, 0, 0)


class UnreadablePng(LodesmanError):
    """Not a picture of this kind; the message says why."""

    code = "unreadable-png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Pixels by rows from the top, three bytes each, and the text chunks."""

    width: int
    height: int
    pixels: bytes
    texts: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> Iterator[bytes]:
        """The rows from the top."""
        stride = 3 * self.width
        return (self.pixels[k : k + stride] for k in range(0, stride * self.height, stride))


def read_png(data: bytes) -> Image:
    """The image in a file's bytes. Raises UnreadablePng for what is broken, too large or of another kind."""
    size: tuple[int, int] | None = None
    packed = []
    texts = {}
    for kind, body in _chunks(data):
        if kind == b"IHDR":
            size = _size(body)
        elif kind == b"IDAT":
            packed.append(body)
        elif kind == b"tEXt":
            keyword, _, text = body.partition(b"\0")
            texts[keyword.decode("latin-1")] = text.decode("latin-1")
    if size is None:
        raise UnreadablePng("there is no header")
    return Image(width=size[0], height=size[1], pixels=_pixels(b"".join(packed), *size), texts=texts)


def write_png(image: Image) -> bytes:
    """The image as a file's bytes."""
    header = struct.pack(">IIBBBBB", image.width, image.height, *_RGB_8_BIT)
    body = zlib.compress(b"".join(b"\0" + row for row in image.rows()), 9)
    texts = [(b"tEXt", f"{key}\0{value}".encode("latin-1", "replace")) for key, value in image.texts.items()]
    chunks = [(b"IHDR", header), *texts, (b"IDAT", body), (b"IEND", b"")]
    return SIGNATURE + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each chunk up to IEND, with their checksums checked."""
    if not data.startswith(SIGNATURE):
        raise UnreadablePng("it is not a PNG file")
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            break
        body = data[at + 8 : end]
        if struct.unpack_from(">I", data, end)[0] != zlib.crc32(kind + body):
            raise UnreadablePng("a checksum does not fit")
        yield kind, body
        if kind == b"IEND":
            return
        at = end + 4
    raise UnreadablePng("it is cut off")


def _size(header: bytes) -> tuple[int, int]:
    if len(header) != 13:
        raise UnreadablePng("the header has a wrong length")
    width, height, *form = struct.unpack(">IIBBBBB", header)
    if tuple(form) != _RGB_8_BIT:
        raise UnreadablePng("it is not 8 bit RGB without interlacing")
    if not 0 < width * height <= MAX_PIXELS:
        raise UnreadablePng(f"{width} x {height} pixels are not between 1 and {MAX_PIXELS}")
    return width, height


def _pixels(packed: bytes, width: int, height: int) -> bytes:
    stride = 3 * width + 1
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, stride * height + 1)
    except zlib.error as error:
        raise UnreadablePng("the pixels cannot be unpacked") from error
    if len(data) != stride * height:
        raise UnreadablePng("the number of pixels does not fit the header")
    if any(data[k] for k in range(0, len(data), stride)):
        raise UnreadablePng("its rows are filtered, which this reader does not undo")
    return b"".join(data[k + 1 : k + stride] for k in range(0, len(data), stride))
