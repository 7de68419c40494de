"""An exact Poisson sampler on `random.Random` alone, for the director's formula.

Small means: Knuth's product of uniforms. Large means: the transformed rejection PTRS of W. Hoermann,
"The transformed rejection method for generating Poisson random variables", Insurance: Mathematics and
Economics 12 (1993), 39-45; its cost does not grow with the mean and it approximates nothing.
"""

from __future__ import annotations

import math
from random import Random

# Above this the logarithms below lose the digits that make the rejection exact.
MAX_MEAN = 1e12

_PTRS_FROM = 10.0
_MAX_TRIES = 10_000


def poisson(mean: float, rng: Random) -> int:
    """One draw with that mean; 0 for a mean <= 0. Raises ValueError for NaN, infinity and means over `MAX_MEAN`."""
    if not math.isfinite(mean) or mean > MAX_MEAN:
        raise ValueError(f"a Poisson mean must be a number up to {MAX_MEAN:g}, not {mean!r}")
    if mean <= 0.0:
        return 0
    if mean >= _PTRS_FROM:
        return _transformed_rejection(mean, rng)
    # Arrivals in one unit of time: uniforms are multiplied until they fall under exp(-mean).
    floor = math.exp(-mean)
    product, count = rng.random(), 0
    while product > floor:
        product *= rng.random()
        count += 1
    return count


def _transformed_rejection(mean: float, rng: Random) -> int:
    """PTRS, for means of 10 and more; names as in the paper."""
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    log_inverse_alpha = math.log(1.1239 + 1.1328 / (b - 3.4))
    log_mean = math.log(mean)
    for _ in range(_MAX_TRIES):
        u = rng.random() - 0.5
        v = 1.0 - rng.random()
        u_s = 0.5 - abs(u)
        if u_s <= 0.0:
            continue
        k = math.floor((2.0 * a / u_s + b) * u + mean + 0.43)
        if u_s >= 0.07 and v <= v_r:
            return k
        if k < 0 or (u_s < 0.013 and v > u_s):
            continue
        if math.log(v) + log_inverse_alpha - math.log(a / (u_s * u_s) + b) <= (
            k * log_mean - mean - math.lgamma(k + 1.0)
        ):
            return k
    # At most one try in four is refused, so only a broken source of randomness comes here.
    raise ArithmeticError("the random source gives no usable numbers")
