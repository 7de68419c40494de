"""The director's own limits on pilots of a CE queue as they are now, as steps of `lode why QUEUE`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lodesman.decide.explain import actors
from lodesman.decide.explain.verdict import counted, last_pilots, span
from lodesman.wire.vocabulary import ClampName
from lodesman.wire.why_queues import QueueBreaker, QueueGate, QueueStep


def gate_steps(gate: QueueGate) -> Iterator[QueueStep]:
    """The free capacity, the breaker and the submission pools, as they are now."""
    shut = [one for one in gate.limits if one.shut] or gate.limits
    # Those of single identities are said in any case.
    shut += [one for one in gate.limits if one.clamp is ClampName.CREDENTIAL and one not in shut]
    limits = "; ".join(f"{one.clamp.value}: {one.text}" for one in shut)
    room = "any number of pilots" if gate.room is None else counted(gate.room, "pilot")
    text = f"free capacity for {room} now ({limits})"
    yield QueueStep("room", gate.room != 0, text, gate.load.age_seconds)
    orders = (
        one.text for one in gate.limits if actors.opener_of(one.clamp, one.text, ()) == actors.BREAKER_ORDERED
    )
    order = next(orders, "")
    text = f"its breaker is {order}" if order else _breaker(gate.breaker)
    yield QueueStep("breaker", not order and gate.breaker.state != "open", text, 0.0)
    free = sum(not one.full for one in gate.submission_pools)
    names = [
        f"{one.name} (handled by {one.handled_by})" if one.handled_by else one.name
        for one in gate.submission_pools
    ]
    text = f"submission pools {', '.join(names) or 'none'}; {free} of {len(gate.submission_pools)} may take pilots now"
    yield QueueStep("submission_pools", free > 0, text, 0.0)


def _breaker(breaker: QueueBreaker) -> str:
    """What became of the last pilots, and when the next one tries it."""
    text = f"its breaker is {breaker.state.value}"
    if breaker.state == "half-open":
        text += ", and one pilot tries it now" if breaker.probing else ", and one pilot may try it"
    elif breaker.retry_seconds is not None:
        text += f", and one pilot tries it in {span(breaker.retry_seconds)}"
    if not breaker.failures:
        return text
    return f"{text}; {unstarted(breaker)}"


def unstarted(breaker: QueueBreaker) -> str:
    """How many of the last pilots did not start, and why."""
    why = f": {breaker.reason}" if breaker.reason else ""
    return f"{last_pilots(breaker.failures)} did not start{why}"
