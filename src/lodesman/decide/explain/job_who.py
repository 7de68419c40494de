"""Who can change that a job waits. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lodesman.decide.explain import actors
from lodesman.decide.explain.closing import who_shortens
from lodesman.decide.explain.job_facts import JobFacts
from lodesman.decide.explain.verdict import OF_LIMITS, STARTS_IN_TURN
from lodesman.decide.masks.bits import bits
from lodesman.wire.vocabulary import MainReason, PoolOutcome

_PASSING: Final = frozenset({PoolOutcome.FULL, PoolOutcome.DISABLED})


def who_changes(facts: JobFacts) -> str:
    """Who can change that it waits, with its number where a command needs one."""
    found = _who(facts)
    return found if facts.job is None else found.replace("JOBS", str(facts.job))


def _who(facts: JobFacts) -> str:
    reason = facts.reason
    if reason is MainReason.HELD and facts.held:
        return actors.OF_HELD[facts.held.by]
    if reason in OF_LIMITS:
        return actors.who_makes_room(facts.limits.buckets, never=reason is MainReason.OVER_LIMIT)
    if facts.keeping and (reason in STARTS_IN_TURN or facts.is_kept):
        busy = MainReason.PILOTS_BUSY if facts.pilots.usable_busy else MainReason.NO_PILOT_SOON
        in_turn = actors.OF_JOBS[busy if facts.is_kept else reason]
        return f"{actors.who_opens((), facts.keeping)}; or {in_turn}"
    if reason is MainReason.WAITS_FOR_JOBS:
        return actors.who_ends_parents(facts.held_parents)
    if reason is MainReason.HOST_SHUT:
        return facts.shut_hosts.who(facts.exclusions.config, facts.eligible)
    if reason in (MainReason.CLOSED, MainReason.NO_ROOM):
        return _who_opens(facts)
    if reason in (MainReason.PILOTS_FAIL, MainReason.NODE_FAULT):
        config, is_open = facts.exclusions.config, any(one.is_open for _, one in facts.failing)
        backends = {offer.backend for queue, _ in facts.failing if (offer := config.offer(queue))}
        return actors.who_mends(backends, _named_settings(facts), is_open=is_open)
    return _of_reason(facts)


def _of_reason(facts: JobFacts) -> str:
    reason = facts.reason
    is_pool_full = any(outcome in _PASSING for _, outcome in facts.refusals)
    if reason is MainReason.NO_SUBMISSION_POOL and facts.exclusions.key.submission_pools and not is_pool_full:
        return "you, by naming other submission pools; or the server administrator, by configuring them"
    is_unwanted = reason is MainReason.SITE_GATE and not facts.fitting
    return actors.NOT_ADVERTISED if is_unwanted else actors.OF_JOBS[reason]


def _who_opens(facts: JobFacts) -> str:
    closings = [one for one, _ in facts.closings]
    gates, settings = (
        ((), ()) if facts.reason is MainReason.CLOSED else (_openers(facts), _named_settings(facts))
    )
    opens = actors.who_opens(gates, closings, settings)
    return who_shortens(facts.shorter, opens) if any(one.is_ahead(facts.now) for one in closings) else opens


def _openers(facts: JobFacts) -> Iterator[str]:
    """The gates as `who_opens` knows them."""
    offers = facts.exclusions.config.by_bit
    for gate, mask in facts.gates:
        yield actors.opener_of(gate.name, gate.text, {offers[bit].backend for bit in bits(mask)})


def _named_settings(facts: JobFacts) -> list[str]:
    """The settings of the server that pilots name which did not start."""
    return actors.settings_named((one.reason for _, one in facts.failing), facts.snapshot.director.settings)
