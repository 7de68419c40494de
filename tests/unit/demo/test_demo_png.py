"""Reading and writing the small kind of PNG that tiles and pictures are."""

from __future__ import annotations

import struct
import zlib

import pytest
from examples.demo.png import MAX_PIXELS, SIGNATURE, Image, UnreadablePng, read_png, write_png
from hypothesis import given
from hypothesis import strategies as st

SMALL = Image(width=2, height=2, pixels=bytes(range(12)), texts={"Tile": "here"})


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def picture(*, width=1, height=1, form=(8, 2, 0, 0, 0), data=b"\0abc") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, *form)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return SIGNATURE + chunks


@st.composite
def images(draw) -> Image:
    width, height = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    pixels = draw(st.binary(min_size=3 * width * height, max_size=3 * width * height))
    words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
    texts = draw(st.dictionaries(words.filter(bool), words, max_size=2))
    return Image(width=width, height=height, pixels=pixels, texts=texts)


@given(images())
def test_what_is_written_is_read_back(image):
    assert read_png(write_png(image)) == image


def test_rows_come_from_the_top():
    assert list(SMALL.rows()) == [bytes(range(6)), bytes(range(6, 12))]


def test_a_hand_made_file_is_read():
    assert read_png(picture()) == Image(width=1, height=1, pixels=b"abc")


def test_pixels_may_be_spread_over_several_chunks():
    packed = zlib.compress(b"\0abc")
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    parts = chunk(b"IDAT", packed[:4]) + chunk(b"IDAT", packed[4:])
    assert read_png(SIGNATURE + header + parts + chunk(b"IEND", b"")).pixels == b"abc"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not a PNG"),
        (b"GIF89a and more", "not a PNG"),
        (SIGNATURE, "cut off"),
        (SIGNATURE + chunk(b"IEND", b""), "no header"),
        (SIGNATURE + chunk(b"IHDR", b"short") + chunk(b"IEND", b""), "wrong length"),
        (picture(form=(16, 2, 0, 0, 0)), "8 bit RGB"),
        (picture(form=(8, 6, 0, 0, 0)), "8 bit RGB"),
        (picture(form=(8, 2, 0, 0, 1)), "8 bit RGB"),
        (picture(width=0), "between 1 and"),
        (picture(width=2**31, height=2**31), "between 1 and"),
        (picture(width=MAX_PIXELS, height=2), "between 1 and"),
        (picture(data=b"\0ab"), "number of pixels"),
        (picture(data=b"\0abcd"), "number of pixels"),
        (picture(data=b"\x01abc"), "filtered"),
    ],
)
def test_other_files_are_refused_with_the_reason(data, complaint):
    with pytest.raises(UnreadablePng, match=complaint):
        read_png(data)


def test_a_changed_byte_is_noticed():
    data = bytearray(write_png(SMALL))
    data[-20] ^= 1
    with pytest.raises(UnreadablePng, match="checksum"):
        read_png(bytes(data))


def test_garbage_instead_of_packed_pixels_is_refused():
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    with pytest.raises(UnreadablePng, match="unpacked"):
        read_png(SIGNATURE + header + chunk(b"IDAT", b"nonsense") + chunk(b"IEND", b""))


@pytest.mark.slow
def test_a_bomb_is_not_unpacked():
    # 64 MB of zeros behind a header that speaks of one pixel: only 5 bytes are unpacked.
    with pytest.raises(UnreadablePng, match="number of pixels"):
        read_png(picture(data=bytes(64 * 2**20)))


@given(st.integers(0, 200), st.binary(max_size=8))
def test_a_cut_or_spliced_file_is_refused_or_the_same(at, splice):
    whole = write_png(SMALL)
    broken = whole[:at] + splice
    try:
        assert read_png(broken) == SMALL
    except UnreadablePng:
        pass
    else:
        assert broken.startswith(whole)
