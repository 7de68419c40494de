#!/usr/bin/env python3
"""Render one tile of a picture of the Mandelbrot set: `render_tile.py INDEX [WIDTHxHEIGHT [COLUMNSxROWS]]`.

Writes `tile_INDEX.png`. The text chunk `Tile` of the PNG says, as JSON, where the tile belongs, so
that whoever joins the tiles needs nothing but the files. Standard library only.
"""

import json
import math
import pathlib
import struct
import sys
import zlib

CENTRE = complex(-0.74505, 0.13065)  # the seahorse valley
WIDTH = 0.0080  # of the picture, in the complex plane
MOST_STEPS = 500
ESCAPE_SQUARED = 1e4
LIGHT = complex(math.sqrt(0.5), math.sqrt(0.5))  # from the upper right
LIGHT_HEIGHT = 1.2
INSIDE = (6.0, 6.0, 14.0)
ROTATED_GRID = ((-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375))
PALETTE = (
    (0.00, (4, 10, 48)),
    (0.16, (18, 72, 150)),
    (0.34, (110, 190, 230)),
    (0.50, (250, 245, 225)),
    (0.66, (250, 190, 70)),
    (0.80, (180, 70, 30)),
    (0.92, (50, 16, 50)),
    (1.00, (4, 10, 48)),
)


def colour(phase):
    """The palette at a phase, of which one turn is 1: smooth between its stops."""
    phase %= 1.0
    right = 1
    while PALETTE[right][0] < phase:
        right += 1
    (low, first), (high, second) = PALETTE[right - 1 : right + 1]
    k = (phase - low) / (high - low)
    k = k * k * (3 - 2 * k)
    return tuple(first[part] + (second[part] - first[part]) * k for part in range(3))


def shade(c, pixel):
    """Colour of the point `c`, and its distance from the set in pixels (0 inside)."""
    z = slope = 0j
    step = 0
    while step < MOST_STEPS:
        step += 1
        slope = 2 * z * slope + 1
        z = z * z + c
        if z.real * z.real + z.imag * z.imag > ESCAPE_SQUARED:
            break
    else:
        return INSIDE, 0.0
    size = abs(z)
    logarithm = math.log(size)
    distance = size * logarithm / abs(slope) / pixel
    normal = z / slope
    normal /= abs(normal)
    light = (normal.real * LIGHT.real + normal.imag * LIGHT.imag + LIGHT_HEIGHT) / (1 + LIGHT_HEIGHT)
    brightness = (0.35 + 0.75 * max(light, 0.0)) * min(1.0, 0.3 + 0.7 * math.sqrt(distance))
    smooth_step = step - math.log(logarithm) / math.log(2)
    phase = 0.16 + 0.9 * math.log(max(smooth_step, 0.0) + 1)
    return tuple(part * brightness for part in colour(phase)), distance


def sample(c, pixel):
    """Colour of the pixel around `c`: one sample, or four where the set is near and one would flicker."""
    here, distance = shade(c, pixel)
    if distance >= 3:
        return here
    around = [shade(c + complex(dx * pixel, dy * pixel), pixel)[0] for dx, dy in ROTATED_GRID]
    return tuple(sum(one[part] for one in around) / len(around) for part in range(3))


def rows_of(tile, picture):
    """The rows of a tile, RGB bytes; tile = (left, top, width, height) in a picture (width, height)."""
    left, top, width, height = tile
    pixel = WIDTH / picture[0]
    for y in range(top, top + height):
        row = bytearray()
        for x in range(left, left + width):
            offset = complex(x + 0.5 - picture[0] / 2, picture[1] / 2 - y - 0.5)
            row += bytes(min(255, int(part)) for part in sample(CENTRE + pixel * offset, pixel))
        yield bytes(row)


def tile_at(index, picture, grid):
    """Left, top, width and height of tile `index`, counted by rows from the upper left."""
    row, column = divmod(index, grid[0])
    left, right = (picture[0] * k // grid[0] for k in (column, column + 1))
    top, bottom = (picture[1] * k // grid[1] for k in (row, row + 1))
    return left, top, right - left, bottom - top


def png(size, rows, text):
    """A PNG file, 8 bit RGB, with one text chunk."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", size[0], size[1], 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    parts = ((b"IHDR", header), (b"tEXt", b"Tile\0" + text.encode("ascii")), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in parts)


def pair(text):
    first, _, second = text.partition("x")
    return int(first), int(second)


def main(arguments):
    index = int(arguments[0])
    picture = pair(arguments[1]) if len(arguments) > 1 else (900, 600)
    grid = pair(arguments[2]) if len(arguments) > 2 else (12, 8)
    tiles = grid[0] * grid[1]
    if not 0 <= index < tiles:
        sys.exit(f"there is no tile {index}: the picture has tiles 0 to {tiles - 1}")
    tile = tile_at(index, picture, grid)
    place = {"index": index, "tiles": tiles, "left": tile[0], "top": tile[1], "picture": picture}
    body = png(tile[2:], rows_of(tile, picture), json.dumps(place))
    target = pathlib.Path(f"tile_{index:03d}.png")
    target.write_bytes(body)
    print(f"{target}: {tile[2]} x {tile[3]} pixels at {tile[0]}, {tile[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
