"""The director's options: the seed's parameters with their spelling and defaults, and our own.

Layers, later wins: the director's section, then the section of a submission pool inside it (named after
the pool), for the options a pool may have. Sources: seed taskqueue-director, "Parameters"; the defaults that
the page does not give are those of the original program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from lodesman.director.adaptive import AdaptiveRules
from lodesman.director.breaker import BreakerRules
from lodesman.director.excess import ExcessRules
from lodesman.director.option_values import Reader, names, number, rising, text, truth, whole
from lodesman.director.token_bucket import RateRules
from lodesman.errors import InvalidConfig

CPU_BUCKETS = (
    360, 1_800, 3_600, 21_600, 43_200, 86_400, 172_800, 259_200,
    345_600, 518_400, 691_200, 864_000, 1_080_000,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What a submission pool may set for itself; the director's section gives the defaults.

    Threads: from the start, at most, and tasks waiting for one. The two of the list-match change nothing: the
    match is how a pilot finds its queue, and is made anew at each iteration (ADR-0009). private_fraction is the fraction of
    *private* pilots for task queues that take both kinds; legacy_fraction gives it the page's own
    inequality, which yields the complement. Generic pilots run as generic_owner of generic_group.
    """

    name: str = ""
    min_threads: int = 0
    max_threads: int = 2
    total_threads: int = 40
    list_match_delay_minutes: float = 5.0
    enable_list_match: bool = True
    private_fraction: float = 0.5
    legacy_fraction: bool = False
    generic_owner: str = "generic"
    generic_group: str = "generic"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorOptions:
    """All options of the director, checked. CPU times are normalised seconds."""

    pilots_per_iteration: float = 40.0
    lowest_cpu_boost: int = 7_200
    extra_pilot_fraction: float = 0.2
    extra_pilots: int = 4
    max_pilot_waiting_hours: float = 6.0
    max_cpu: int = CPU_BUCKETS[-1]
    cpu_buckets: tuple[int, ...] = CPU_BUCKETS
    submission_pools: tuple[str, ...] = ("Local",)
    default_submission_pools: tuple[str, ...] = ("Local",)
    max_pilots_per_iteration: int = 0
    max_load_age_s: float = 600.0
    pool_defaults: PoolOptions = field(default_factory=PoolOptions)
    pools: Mapping[str, PoolOptions] = field(default_factory=lambda: {"Local": PoolOptions(name="Local")})
    adaptive: AdaptiveRules = field(default_factory=AdaptiveRules)
    breaker: BreakerRules = field(default_factory=BreakerRules)
    rate: RateRules = field(default_factory=RateRules)
    excess: ExcessRules = field(default_factory=ExcessRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One option: its name at the edge, the group and field it fills, how it is read."""

    option: str
    group: str
    field: str
    read: Reader


def _rule(option: str, target: str, read: Reader) -> _Rule:
    group, _, name = target.rpartition(".")
    return _Rule(option=option, group=group, field=name, read=read)


# The bounds keep the formula's mean below what `poisson` accepts:
# 2 x 10,000 pilots x 100 (adaptiveMaxFactor) x 100,000,000 / 360 < 1e12.
_RULES = (
    _rule("pilotsPerIteration", "pilots_per_iteration", number(0, 10_000)),
    _rule("lowestCPUBoost", "lowest_cpu_boost", whole(360, 100_000_000)),
    _rule("extraPilotFraction", "extra_pilot_fraction", number(0, 100)),
    _rule("extraPilots", "extra_pilots", whole(0, 100_000)),
    _rule("maxPilotWaitingHours", "max_pilot_waiting_hours", number(0.001, 10_000)),
    _rule("maxCPU", "max_cpu", whole(360, 100_000_000)),
    _rule("taskQueueCPUTimeIntervals", "cpu_buckets", rising),
    _rule("SubmitPools", "submission_pools", names),
    _rule("DefaultSubmitPools", "default_submission_pools", names),
    _rule("maxPilotsPerIteration", "max_pilots_per_iteration", whole(0, 1_000_000)),
    _rule("maxLoadAgeSeconds", "max_load_age_s", number(1, 86_400)),
    _rule("minThreadsInPool", "pool.min_threads", whole(0, 1_000)),
    _rule("maxThreadsInPool", "pool.max_threads", whole(1, 1_000)),
    _rule("totalThreadsInPool", "pool.total_threads", whole(1, 1_000_000)),
    _rule("ListMatchDelay", "pool.list_match_delay_minutes", number(0, 10_000)),
    _rule("EnableListMatch", "pool.enable_list_match", truth),
    _rule("PrivatePilotFraction", "pool.private_fraction", number(0, 1)),
    _rule("LegacyPrivatePilotFraction", "pool.legacy_fraction", truth),
    _rule("GenericPilotDN", "pool.generic_owner", text),
    _rule("GenericPilotGroup", "pool.generic_group", text),
    _rule("adaptiveTarget", "adaptive.enabled", truth),
    _rule("targetWaitingJobs", "adaptive.target_waiting_jobs", whole(1, 1_000_000_000)),
    _rule("targetRunningJobs", "adaptive.target_running_jobs", whole(0, 1_000_000_000)),
    _rule("adaptiveMaxFactor", "adaptive.max_factor", number(0, 100)),
    _rule("breakerFailures", "breaker.failures", whole(1, 1_000)),
    _rule("breakerOpenSeconds", "breaker.open_s", number(1, 86_400)),
    _rule("breakerMaxOpenSeconds", "breaker.max_open_s", number(1, 604_800)),
    _rule("pilotsPerMinute", "rate.per_minute", number(0.001, 1_000_000)),
    _rule("pilotBurst", "rate.burst", whole(1, 1_000_000)),
    _rule("cancelExcess", "excess.enabled", truth),
    _rule("excessPilotFraction", "excess.tolerated_fraction", number(0, 100)),
    _rule("maxCancelsPerIteration", "excess.max_cancels", whole(0, 100_000)),
    _rule("excessConfirmSeconds", "excess.confirm_s", number(0, 86_400)),
)
_BY_OPTION = {rule.option: rule for rule in _RULES}
_Values = dict[str, dict[str, Any]]


def read_options(section: Mapping[str, object]) -> DirectorOptions:
    """The options of a director's section; values are text or typed, sub-sections are mappings.

    Raises InvalidConfig that lists every fault in `data["faults"]`, each with section, option and message.
    """
    faults: list[dict[str, str]] = []
    plain = {name: raw for name, raw in section.items() if not isinstance(raw, Mapping)}
    values = _read_section(plain, "Director", faults)
    top = values.get("", {})
    if "cpu_buckets" in top:
        top.setdefault("max_cpu", top["cpu_buckets"][-1])
    if "submission_pools" in top:
        top.setdefault("default_submission_pools", top["submission_pools"])
    defaults = PoolOptions(**values.get("pool", {}))
    known = top.get("submission_pools", DirectorOptions().submission_pools)
    sections = {name: raw for name, raw in section.items() if isinstance(raw, Mapping)}
    options = DirectorOptions(
        **top,
        pool_defaults=defaults,
        pools=_read_pools(known, sections, defaults, faults),
        adaptive=AdaptiveRules(**values.get("adaptive", {})),
        breaker=BreakerRules(**values.get("breaker", {})),
        rate=RateRules(**values.get("rate", {})),
        excess=ExcessRules(**values.get("excess", {})),
    )
    _check_together(options, faults)
    if faults:
        raise _invalid(faults)
    return options


def _read_section(plain: Mapping[str, object], where: str, faults: list[dict[str, str]]) -> _Values:
    """Typed values by group and field; faults are noted and their options left out."""
    values: _Values = {}
    for option, raw in plain.items():
        rule = _BY_OPTION.get(option)
        if rule is None:
            _note(faults, where, option, _unknown(option))
            continue
        try:
            values.setdefault(rule.group, {})[rule.field] = rule.read(raw)
        except ValueError as wrong:
            _note(faults, where, option, f"must be {wrong}, not {str(raw)[:80]!r}")
    return values


def _read_pools(
    known: tuple[str, ...],
    sections: Mapping[str, Mapping[str, object]],
    defaults: PoolOptions,
    faults: list[dict[str, str]],
) -> dict[str, PoolOptions]:
    for name in sections:
        if name not in known:
            _note(faults, name, "", f"is no pool of SubmitPools ({', '.join(known)})")
    inherited = {one.name: getattr(defaults, one.name) for one in fields(PoolOptions)}
    pools = {}
    for name in known:
        values = _read_section(sections.get(name, {}), name, faults)
        for group in values.keys() - {"pool"}:
            for rule in _RULES:
                if rule.group == group and rule.field in values[group]:
                    _note(faults, name, rule.option, "belongs to the director's section, not to a pool's")
        pools[name] = PoolOptions(**(inherited | values.get("pool", {}) | {"name": name}))
    return pools


def _check_together(options: DirectorOptions, faults: list[dict[str, str]]) -> None:
    """Checks that need several options."""
    inherited = (options.pool_defaults.min_threads, options.pool_defaults.max_threads)
    own = [one for one in options.pools.values() if (one.min_threads, one.max_threads) != inherited]
    for pool in (options.pool_defaults, *own):
        if pool.min_threads > pool.max_threads:
            _note(
                faults,
                pool.name or "Director",
                "minThreadsInPool",
                f"{pool.min_threads} is more than maxThreadsInPool {pool.max_threads}",
            )
    missing = [one for one in options.default_submission_pools if one not in options.submission_pools]
    if missing:
        _note(faults, "Director", "DefaultSubmitPools", f"not in SubmitPools: {', '.join(missing)}")
    if options.max_cpu < options.cpu_buckets[-1]:
        _note(faults, "Director", "maxCPU", f"must be at least the last bucket, {options.cpu_buckets[-1]}")
    if options.breaker.max_open_s < options.breaker.open_s:
        _note(faults, "Director", "breakerMaxOpenSeconds", "is less than breakerOpenSeconds")


def _note(faults: list[dict[str, str]], section: str, option: str, message: str) -> None:
    fault = {"section": section, "option": option, "message": message}
    if fault not in faults:
        faults.append(fault)


def _unknown(option: str) -> str:
    folded = {name.lower(): name for name in _BY_OPTION}
    close = get_close_matches(option.lower(), folded, n=1, cutoff=0.6)
    return "is not known" + (f"; did you mean {folded[close[0]]}?" if close else "")


def _invalid(faults: list[dict[str, str]]) -> InvalidConfig:
    parts = [" ".join(filter(None, (f["section"], f["option"], f["message"]))) for f in faults]
    return InvalidConfig(
        f"The director's options have {len(faults)} fault(s): " + "; ".join(parts) + ".",
        section=faults[0]["section"],
        faults=faults,
    )
