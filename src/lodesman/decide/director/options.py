"""The director's options: the seed's, with their spelling and defaults, and our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, NamedTuple

from msgspec import Struct

from lodesman.base.errors import InvalidConfig
from lodesman.decide.director.option_values import (
    Reader,
    backend_names,
    names,
    number,
    policy_name,
    queue_names,
    rising,
    some_expression,
    some_names,
    some_text,
    text,
    truth,
    whole,
)
from lodesman.decide.matching.offers import PoolScope
from lodesman.wire.vocabulary import TargetPolicy

CPU_BUCKETS = (
    360, 1_800, 3_600, 21_600, 43_200, 86_400, 172_800, 259_200,
    345_600, 518_400, 691_200, 864_000, 1_080_000,
)  # fmt: skip

_DIRECTOR = "director"  # handles a submission pool, unless another name is given

# --- the options ----------------------------------------------------------------------------------------------


def _option(name: str, read: Reader, default: Any) -> Any:
    return field(default=default, metadata={"option": name, "read": read})


# The bounds keep the formula's mean below what `poisson` accepts:
# 2 x 10,000 pilots x 100 (adaptiveMaxFactor), or 2 x 1,000,000 (maxTarget), x 100,000,000 / 360 < 1e12.


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRules:
    """The target's policy, and what it needs (`director.target`)."""

    policy: TargetPolicy = _option("TargetPolicy", policy_name, TargetPolicy.SEED)  # noqa: RUF009  immutable
    # adaptive: with so many the target is pilotsPerIteration
    target_waiting_jobs: int = _option("targetWaitingJobs", whole(1, 1_000_000_000), 200)
    # adaptive: with so many the target is 0; 0: no such target
    target_running_jobs: int = _option("targetRunningJobs", whole(0, 1_000_000_000), 0)
    max_factor: float = _option("adaptiveMaxFactor", number(0, 100), 10.0)  # adaptive: never grows by more
    gap_iterations: int = _option("gapIterations", whole(1, 1_000), 3)  # gap: closed in about so many
    # ratio: so many of the running pilots may wait
    running_fraction: float = _option("runningFraction", number(0, 100), 0.2)
    minimum: int = _option("minTarget", whole(1, 1_000_000), 4)  # gap and ratio
    maximum: int = _option("maxTarget", whole(1, 1_000_000), 1_000)  # gap and ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When a breaker opens."""

    failures: int = _option("breakerFailures", whole(1, 1_000), 3)  # in a row
    # doubled at each trip up to `max_open_s`
    open_s: float = _option("breakerOpenSeconds", number(1, 86_400), 300.0)
    max_open_s: float = _option("breakerMaxOpenSeconds", number(1, 604_800), 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRules:
    """The rate of submissions to a CE."""

    per_minute: float = _option("pilotsPerMinute", number(0.001, 1_000_000), 60.0)  # in the long run
    burst: int = _option("pilotBurst", whole(1, 1_000_000), 40)  # at once after a pause


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessRules:
    """How eager cancelling is."""

    enabled: bool = _option("cancelExcess", truth, True)
    # surplus pilots that may stay, of the counted ones; useless ones may not
    tolerated_fraction: float = _option("excessPilotFraction", number(0, 100), 0.5)
    max_cancels: int = _option("maxCancelsPerIteration", whole(0, 100_000), 100)
    # how long a pilot is spare before
    confirm_s: float = _option("excessConfirmSeconds", number(0, 86_400), 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Options of one submission pool."""

    name: str = ""
    min_threads: int = _option("minThreadsInPool", whole(0, 1_000), 0)  # from the start
    max_threads: int = _option("maxThreadsInPool", whole(1, 1_000), 2)
    # tasks that wait for a thread
    total_threads: int = _option("totalThreadsInPool", whole(1, 1_000_000), 40)
    # until a batch system is asked again
    list_match_delay_minutes: float = _option("ListMatchDelay", number(0, 10_000), 5.0)
    # ask batch systems whether they ever run the pilots of their queues (ADR 0045)
    enable_list_match: bool = _option("EnableListMatch", truth, True)
    # of *private* pilots, for task queues that take both kinds (ADR 0039)
    private_fraction: float = _option("PrivatePilotFraction", number(0, 1), 0.0)
    # `private_fraction` means its complement
    legacy_fraction: bool = _option("LegacyPrivatePilotFraction", truth, False)
    generic_owner: str = _option("GenericPilotDN", text, "generic")  # as whom generic pilots run
    generic_group: str = _option("GenericPilotGroup", text, "generic")
    backends: tuple[str, ...] = _option("Backends", backend_names, ())
    sites: tuple[str, ...] = _option("Sites", some_names, ())
    queues: tuple[str, ...] = _option("Queues", queue_names, ())
    identity: str = _option("identity", some_text, "")
    rank: str = _option("Rank", some_expression, "")  # over the ads of sites; the greatest value first
    # who sends its pilots; the director sends its own only
    handled_by: str = _option("handled_by", text, _DIRECTOR)

    @property
    def scope(self) -> PoolScope:
        """What it serves."""
        return PoolScope(backends=self.backends, sites=self.sites, queues=self.queues)

    @property
    def elsewhere(self) -> str:
        """Who handles it if not the director; '' if the director does."""
        return "" if self.handled_by.lower() == _DIRECTOR else self.handled_by


class IdentityRule(Struct, frozen=True, kw_only=True):
    """An identity: whose private pilots use it, and on which batch systems."""

    owner: str = ""
    group: str = ""
    backends: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorOptions:
    """Checked options. CPU times are normalised seconds."""

    pilots_per_iteration: float = _option("pilotsPerIteration", number(0, 10_000), 40.0)
    lowest_cpu_boost: int = _option("lowestCPUBoost", whole(360, 100_000_000), 7_200)
    extra_pilot_fraction: float = _option("extraPilotFraction", number(0, 100), 0.2)
    extra_pilots: int = _option("extraPilots", whole(0, 100_000), 4)
    max_pilot_waiting_hours: float = _option("maxPilotWaitingHours", number(0.001, 10_000), 6.0)
    max_cpu: int = _option("maxCPU", whole(360, 100_000_000), CPU_BUCKETS[-1])
    cpu_buckets: tuple[int, ...] = _option("taskQueueCPUTimeIntervals", rising, CPU_BUCKETS)
    submission_pools: tuple[str, ...] = _option("SubmitPools", names, ("Local",))
    default_submission_pools: tuple[str, ...] = _option("DefaultSubmitPools", names, ("Local",))
    max_pilots_per_iteration: int = _option("maxPilotsPerIteration", whole(0, 1_000_000), 0)
    required_time_left: float = _option("requiredTimeLeft", number(60, 31_536_000), 432_000.0)
    max_load_age_s: float = _option("maxLoadAgeSeconds", number(1, 86_400), 600.0)
    pool_defaults: PoolOptions = PoolOptions()
    identities: Mapping[str, IdentityRule] = field(default_factory=dict)  # have sections of their own
    pools: Mapping[str, PoolOptions] = field(default_factory=lambda: {"Local": PoolOptions(name="Local")})
    target: TargetRules = TargetRules()
    breaker: BreakerRules = BreakerRules()
    rate: RateRules = RateRules()
    excess: ExcessRules = ExcessRules()

    @property
    def scopes(self) -> dict[str, PoolScope]:
        """What each pool serves."""
        return {name: pool.scope for name, pool in self.pools.items()}

    def list_match_seconds(self, pools: Iterable[str]) -> float | None:
        """How long answers about a queue of these pools are kept; None: they are not asked."""
        chosen = (self.pools[name] for name in pools if name in self.pools)
        return min(
            (60.0 * pool.list_match_delay_minutes for pool in chosen if pool.enable_list_match), default=None
        )


class _Rule(NamedTuple):
    option: str  # its name in the files
    group: str
    field: str
    read: Reader


_PARTS = {"target": TargetRules, "breaker": BreakerRules, "rate": RateRules, "excess": ExcessRules}
_RULES = tuple(
    _Rule(option_field.metadata["option"], group, option_field.name, option_field.metadata["read"])
    for group, kind in {"": DirectorOptions, "pool": PoolOptions, **_PARTS}.items()
    for option_field in fields(kind)
    if option_field.metadata
)
_BY_OPTION = {rule.option: rule for rule in _RULES}
_Values = dict[str, dict[str, Any]]


def formula_options(options: DirectorOptions) -> dict[str, Any]:
    """The options of director and target, as `read_options` reads them."""
    groups = {"": options, "target": options.target}
    return {rule.option: getattr(groups[rule.group], rule.field) for rule in _RULES if rule.group in groups}


def read_options(section: Mapping[str, object]) -> DirectorOptions:
    """Raises InvalidConfig with all faults (section, option, message) in `data["faults"]`."""
    faults: list[dict[str, str]] = []
    plain = {name: raw for name, raw in section.items() if not isinstance(raw, Mapping)}
    values = _read_section(plain, "Director", faults)
    top = values.get("", {})
    if "cpu_buckets" in top:
        top.setdefault("max_cpu", top["cpu_buckets"][-1])
    if "submission_pools" in top:
        top.setdefault("default_submission_pools", top["submission_pools"])
    defaults = PoolOptions(**values.get("pool", {}))
    names = top.get("submission_pools", DirectorOptions().submission_pools)
    sections = {name: raw for name, raw in section.items() if isinstance(raw, Mapping)}
    options = DirectorOptions(
        **top,
        pool_defaults=defaults,
        pools=_read_pools(names, sections, defaults, faults),
        **{group: kind(**values.get(group, {})) for group, kind in _PARTS.items()},
    )
    _check_together(options, faults)
    if faults:
        parts = [" ".join(filter(None, fault.values())) for fault in faults]
        raise InvalidConfig(
            f"The director's options have {len(faults)} fault(s): {'; '.join(parts)}.",
            section=faults[0]["section"],
            faults=faults,
        )
    return options


def _read_section(plain: Mapping[str, object], where: str, faults: list[dict[str, str]]) -> _Values:
    values: _Values = {}
    for option, raw in plain.items():
        rule = _BY_OPTION.get(option)
        if rule is None:
            folded = {name.lower(): name for name in _BY_OPTION}
            close = get_close_matches(option.lower(), folded, n=1)
            hint = f"; did you mean {folded[close[0]]}?" if close else ""
            _note(faults, where, option, f"is not known{hint}")
            continue
        try:
            values.setdefault(rule.group, {})[rule.field] = rule.read(raw)
        except ValueError as wrong:
            _note(faults, where, option, f"must be {wrong}, not {str(raw)[:80]!r}")
    return values


def _read_pools(
    names: tuple[str, ...],
    sections: Mapping[str, Mapping[str, object]],
    defaults: PoolOptions,
    faults: list[dict[str, str]],
) -> dict[str, PoolOptions]:
    for name in sections:
        if name not in names:
            _note(faults, name, "", f"is no pool of SubmitPools ({', '.join(names)})")
    inherited = {option.name: getattr(defaults, option.name) for option in fields(PoolOptions)}
    pools = {}
    for name in names:
        values = _read_section(sections.get(name, {}), name, faults)
        for rule in _RULES:
            if rule.group != "pool" and rule.field in values.get(rule.group, {}):
                _note(faults, name, rule.option, "belongs to the director's section, not to a pool's")
        pools[name] = PoolOptions(**(inherited | values.get("pool", {}) | {"name": name}))
    return pools


def _check_together(options: DirectorOptions, faults: list[dict[str, str]]) -> None:
    default = options.pool_defaults
    for pool in (default, *options.pools.values()):
        is_inherited = (pool.min_threads, pool.max_threads) == (default.min_threads, default.max_threads)
        if pool.min_threads > pool.max_threads and (pool is default or not is_inherited):
            message = f"{pool.min_threads} is more than maxThreadsInPool {pool.max_threads}"
            _note(faults, pool.name or "Director", "minThreadsInPool", message)
        fraction = (pool.legacy_fraction, pool.private_fraction)
        is_inherited = fraction == (default.legacy_fraction, default.private_fraction)
        if fraction == (True, 0.0) and (pool is default or not is_inherited):
            message = "needs a PrivatePilotFraction above 0 (the page's is 0.5)"
            _note(faults, pool.name or "Director", "LegacyPrivatePilotFraction", message)
    missing = [
        pool_name
        for pool_name in options.default_submission_pools
        if pool_name not in options.submission_pools
    ]
    if missing:
        _note(faults, "Director", "DefaultSubmitPools", f"not in SubmitPools: {', '.join(missing)}")
    if options.max_cpu < options.cpu_buckets[-1]:
        _note(faults, "Director", "maxCPU", f"must be at least the last bucket, {options.cpu_buckets[-1]}")
    if options.required_time_left < options.max_pilot_waiting_hours * 3_600:
        _note(
            faults,
            "Director",
            "requiredTimeLeft",
            "is less than maxPilotWaitingHours: late pilots could not join",
        )
    if options.target.minimum > options.target.maximum:
        _note(faults, "Director", "minTarget", f"is more than maxTarget {options.target.maximum}")
    if options.breaker.max_open_s < options.breaker.open_s:
        _note(faults, "Director", "breakerMaxOpenSeconds", "is less than breakerOpenSeconds")


def _note(faults: list[dict[str, str]], section: str, option: str, message: str) -> None:
    fault = {"section": section, "option": option, "message": message}
    if fault not in faults:
        faults.append(fault)
