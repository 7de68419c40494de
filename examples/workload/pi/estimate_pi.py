#!/usr/bin/env python3
"""Monte Carlo estimate of pi: `estimate_pi.py SEED SAMPLES` throws points at the unit square.

Writes `pi.json`: the seed, how many points were thrown and how many fell inside the quarter circle.
Estimates with different seeds can be added up. Standard library only.
"""

import json
import pathlib
import random
import sys


def count_hits(seed, samples):
    """How many of `samples` random points of the unit square lie in the quarter circle."""
    draw = random.Random(seed).random
    hits = 0
    for _ in range(samples):
        x = draw()
        y = draw()
        if x * x + y * y <= 1.0:
            hits += 1
    return hits


def main(arguments):
    seed, samples = (int(text) for text in arguments)
    if samples < 1:
        sys.exit(f"at least one sample is needed, not {samples}")
    hits = count_hits(seed, samples)
    result = json.dumps({"seed": seed, "samples": samples, "hits": hits})
    pathlib.Path("pi.json").write_text(result + "\n")
    print(f"seed {seed}: {hits} of {samples}, pi is about {4.0 * hits / samples:.6f}")


if __name__ == "__main__":
    main(sys.argv[1:])
