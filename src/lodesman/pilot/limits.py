"""Has a payload used more than it may, and when to look again? Pure.

What is measured over the whole tree decides; the kernel's limits per process (`launch`) are a net below.
"""

from __future__ import annotations

from dataclasses import dataclass

from lodesman.pilot.protocol import CPU_LIMIT, MEMORY_LIMIT, OUTPUT_LIMIT, WALL_LIMIT, Limits

MB = 1 << 20
# Never look more often than this: a look at all processes costs up to some milliseconds.
SHORTEST_LOOK_S = 0.1


@dataclass(frozen=True)
class Measured:
    """What a payload has used: CPU and wall time in seconds, memory in MB, its two streams in bytes."""

    cpu_seconds: float
    wall_seconds: float
    rss_mb: float
    stream_bytes: int
    cores: int = 1


@dataclass(frozen=True)
class Excess:
    """The limit that is passed. `at_once`: it must not go on until it has tidied up."""

    cause: str
    message: str
    at_once: bool


def cpu_limit(limits: Limits, scaling: float) -> float:
    """CPU seconds on this node, all cores together; the server's own figure goes first. 0: none."""
    return limits.cpu_seconds or limits.norm_cpu_seconds / scaling


def excess(measured: Measured, limits: Limits, *, scaling: float) -> Excess | None:
    """The first limit that is passed, those first that harm others."""
    if limits.memory_mb and measured.rss_mb > limits.memory_mb:
        told = f"The job held {measured.rss_mb:.0f} MB of memory; {limits.memory_mb:.0f} are allowed."
        return Excess(MEMORY_LIMIT, told, at_once=True)
    if limits.most_output_mb and measured.stream_bytes > limits.most_output_mb * MB:
        told = f"Standard output and error grew over {limits.most_output_mb:.0f} MB."
        return Excess(OUTPUT_LIMIT, told, at_once=True)
    most = cpu_limit(limits, scaling)
    if most and measured.cpu_seconds > most:
        told = f"The job used {measured.cpu_seconds:.0f} s of CPU time; {most:.0f} are allowed."
        return Excess(CPU_LIMIT, told, at_once=False)
    if limits.wall_seconds and measured.wall_seconds > limits.wall_seconds:
        told = f"The job ran for {measured.wall_seconds:.0f} s; {limits.wall_seconds:.0f} are allowed."
        return Excess(WALL_LIMIT, told, at_once=False)
    return None


def next_look_s(measured: Measured, limits: Limits, *, scaling: float, usual_s: float) -> float:
    """Seconds until the next look: sooner when a limit may be passed before the usual time."""
    wait = usual_s
    most = cpu_limit(limits, scaling)
    if most:
        wait = min(wait, (most - measured.cpu_seconds) / max(1, measured.cores))
    if limits.wall_seconds:
        wait = min(wait, limits.wall_seconds - measured.wall_seconds)
    if limits.memory_mb and measured.rss_mb > 0.7 * limits.memory_mb:
        wait = min(wait, usual_s / 4)
    if limits.most_output_mb and measured.stream_bytes > 0.5 * limits.most_output_mb * MB:
        wait = min(wait, usual_s / 4)
    return max(SHORTEST_LOOK_S, wait)
