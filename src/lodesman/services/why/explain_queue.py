"""`lode why QUEUE`: why no pilots are sent to a CE queue, or that they are (user needs 1 and 2).

Work is counted by the claim's criteria (`survey`), limits are the director's own (`queue_gate`), what it did is told
from its last iteration. Each step tells how old that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lodesman.answers.vocabulary import ClampName, QueueReason
from lodesman.background.origins import show_node
from lodesman.commands.site_mask import as_row
from lodesman.matching import QueueOffer
from lodesman.resources import NodePath, describe
from lodesman.services.why.closed_queues import who_opens_them
from lodesman.services.why.queue_case import LOOKED_AT, QueueCase
from lodesman.services.why.queue_verdict import VERDICTS, WANTED, WHO, least_job_refused, who_opens
from lodesman.services.why.step import counted, not_lately, span, step
from lodesman.submission import never_sent

SHOWN: Final = 5
PLAIN: Final = {
    QueueReason.NOT_CONFIGURED: "There is no such queue in the configuration.",
    QueueReason.BY_HAND: "{work}; pilots there are started by hand, none is sent.",
    QueueReason.NOT_DECIDED: "{work}; the director has not decided anything about it {lately}.",
    QueueReason.DIRECTOR_OFF: "{work}; the director sends no pilots: its target is 0.",
    QueueReason.ENOUGH_PILOTS: "{work}; for all of them enough pilots wait or are idle already.",
    QueueReason.NO_SUBMISSION_POOL: "{work}; pilots were asked for, and no submission pool would take them.",
    QueueReason.NO_ROOM: "{work}, and none may be sent now: {shut}.",
    QueueReason.PILOTS_EXPECTED: "{work}, and it has room: pilots may be sent at the director's next iteration.",
}


def explain_queue(case: QueueCase) -> dict[str, Any]:
    """The whole answer as JSON values."""
    reason = case.reason
    return {
        "site": case.place.site,
        "ce": case.place.ce,
        "queue": case.place.queue,
        "vo": case.vo,
        "verdict": VERDICTS[reason],
        "main_reason": reason.value,
        "summary": _summary(case, reason),
        "who": _who(case, reason),
        "chain": list(_chain(case)),
        "settings": _settings(case),
        "work": None if case.survey is None else case.survey.as_dict(),
        "director": _director(case),
        "gate": None if case.gate is None else case.gate.as_dict(),
        "pilots": dict(case.own),
        "lately": list(case.lately),
        "ages": {
            "work": case.age(case.picture.at),
            "director": case.age(case.decided_at),
            "gate": None if case.gate is None else 0.0,
        },
    }


def _settings(case: QueueCase) -> list[dict[str, Any]]:
    """Every effective value with where it is written, and what the program assumes for what is not said."""
    if not case.configured:
        return []
    rows = show_node(case.policy.config, NodePath(*case.place), case.vo)["parameters"]
    return [
        {name: row[name] for name in ("name", "value", "level", "file", "section", "line", "made_of")}
        for row in rows
    ]


# --- the steps -------------------------------------------------------------------------------------------


def _chain(case: QueueCase) -> Iterator[dict[str, Any]]:
    yield _configured(case)
    if case.configured:
        yield _access(case)
    if case.offer is not None:
        yield _possible(case, case.offer)
        yield _mask(case)
        yield _work(case)
        pools = counted(case.pools, "SubmitPool")
        yield step(
            "submit_pools",
            True,
            f"it serves {pools}",
            count=case.pools,
            age_seconds=case.age(case.picture.at),
        )
        yield _demand(case)
        yield from _gate(case)
    yield _pilots(case)
    yield _history(case)


def _configured(case: QueueCase) -> dict[str, Any]:
    if not case.configured:
        return step("configured", False, "there is no such queue in the configuration")
    tree = case.policy.config.tree
    source = tree.sites[case.place.site].ces[case.place.ce].queues[case.place.queue].source
    where = f" in {source.file}, line {source.line}" if source and source.file else ""
    return step("configured", True, f"it is configured{where}")


def _access(case: QueueCase) -> dict[str, Any]:
    text = f"VO {case.vo} may use it" if case.denied is None else describe(case.denied)
    return step("access", case.denied is None, text)


def _possible(case: QueueCase, offer: QueueOffer) -> dict[str, Any]:
    """Whether any job at all could run there, and any pilot be sent."""
    closed = case.gate.candidate.no_backend if case.gate and not case.by_hand else ""
    reasons = [*([closed] if closed else []), *map(str, least_job_refused(offer))]
    zero = never_sent(offer)
    reasons += [zero.text] if zero and zero.text not in reasons else []
    text = "; ".join(reasons) or f"{_sent(case, offer)}; a job that asks for little can run there"
    return step("possible", not reasons, text)


def _mask(case: QueueCase) -> dict[str, Any]:
    told = "; ".join(f"{one.path} is {one.text}" for one in case.closings)
    rows = [as_row(one) for one in case.closings]
    return step(
        "site_mask", not rows, told or "no administrator has closed it", closings=rows, age_seconds=0.0
    )


def _sent(case: QueueCase, offer: QueueOffer) -> str:
    return "pilots there are started by hand" if case.by_hand else f"backend {offer.backend}"


def _work(case: QueueCase) -> dict[str, Any]:
    survey = case.survey
    assert survey is not None  # noqa: S101
    text = (
        f"{len(survey.fitting)} of {counted(survey.known, 'task queue')} with waiting jobs could be run there "
        f"({survey.fitting_jobs} of {counted(survey.jobs, 'job')})"
    )
    told = ", ".join(f"{name} rules out {n}" for name, n in survey.refused[:SHOWN])
    text += f"; {told}" if told else ""
    return step("work", bool(survey.fitting), text, age_seconds=case.age(case.picture.at))


def _demand(case: QueueCase) -> dict[str, Any]:
    found, decided, at = case.demand, case.decided, case.decided_at
    if found is None:
        text = f"the director has not decided anything {_lately(case)}"
        return step("director", None, text, demand={}, age_seconds=case.age(at))
    told = (
        ", ".join(f"{one.value}: {n}" for one, n in found.most_common())
        or "no task queue concerns this queue"
    )
    text = f"at its last iteration, for these task queues: {told}" if found else told
    if decided is None:
        text += "; it did not look at this queue"
    else:
        text += f"; {counted(decided['wanted'], 'pilot')} of theirs could have come here, room was {decided['room']}"
    holds = any(found[one] for one in WANTED)
    counts = {one.name.lower(): n for one, n in found.items()}
    return step("director", holds, text, demand=counts, age_seconds=case.age(at))


def _gate(case: QueueCase) -> Iterator[dict[str, Any]]:
    gate = case.gate
    if gate is None:
        yield _gate_as_decided(case)
        return
    load = gate.candidate
    observed = case.age(load.load_waiting.observed_at)
    limits = "; ".join(f"{one.name.value}: {one.detail}" for one in gate.shut or gate.limits)
    room = "any number of pilots" if gate.room is None else counted(gate.room, "pilot")
    yield step("room", gate.room != 0, f"room for {room} now ({limits})", age_seconds=observed)
    breaker = gate.as_dict()["breaker"]
    text = f"its breaker is {breaker['state']}"
    if breaker["retry_seconds"] is not None:
        text += f" for {span(breaker['retry_seconds'])} more"
    text += f", after {counted(breaker['failures'], 'failure')} in a row" if breaker["failures"] else ""
    text += f": {breaker['reason']}" if breaker["reason"] else ""
    yield step("breaker", breaker["state"] != "open", text, age_seconds=0.0)
    free = [one.name for one in gate.pools if one.enabled and not one.is_full]
    names = ", ".join(one.name for one in gate.pools) or "none"
    text = f"submission pools {names}; {len(free)} of {len(gate.pools)} take pilots now"
    yield step("submission_pools", bool(free), text, age_seconds=0.0)


def _gate_as_decided(case: QueueCase) -> dict[str, Any]:
    """What the last iteration says of the room, where nobody can look at it now."""
    decided = case.decided
    if decided is None:
        return step("room", None, "nobody knows: the director did not look at it lately")
    bites = "; ".join(str(bite[-1]) for bite in decided["clamps"]) or "no limit took anything away"
    text = f"room for {counted(decided['room'], 'pilot')} at the last iteration ({bites})"
    return step("room", decided["room"] > 0, text, age_seconds=case.age(case.decided_at))


def _pilots(case: QueueCase) -> dict[str, Any]:
    told = ", ".join(f"{n} {state}" for state, n in sorted(case.own.items())) or "none"
    return step("pilots", True, f"our live pilots there: {told}", age_seconds=0.0)


def _history(case: QueueCase) -> dict[str, Any]:
    if not case.lately:
        return step("lately", None, f"none of the last {LOOKED_AT} pilots was sent there")
    ended = [one for one in case.lately if one["ended_seconds_ago"] is not None]
    unused = sum(1 for one in ended if not one["joined"])
    text = f"of the last {counted(len(case.lately), 'pilot')} sent there {len(ended)} ended"
    text += f", {unused} of them without ever joining" if unused else ""
    newest = next((one for one in ended if one["reason"]), None)
    text += f"; the last: {newest['reason']}" if newest else ""
    return step(
        "lately", unused < len(ended) if ended else True, text, age_seconds=case.lately[0]["sent_seconds_ago"]
    )


# --- the parts of the answer -----------------------------------------------------------------------------


def _summary(case: QueueCase, reason: QueueReason) -> str:
    if reason is QueueReason.NOT_OPEN and case.denied is not None:
        return f"{describe(case.denied)}."
    if reason is QueueReason.NO_WORK:
        return _no_work(case)
    if reason not in PLAIN and case.offer is not None:
        return f"No pilot will ever be sent there: {_possible(case, case.offer)['text']}."
    fitting = len(case.survey.fitting) if case.survey else 0
    work = f"{counted(fitting, 'task queue')} could be run there"
    return PLAIN[reason].format(work=work, shut=_shut(case), lately=_lately(case))


def _lately(case: QueueCase) -> str:
    return not_lately(case.age(case.decided_at))


def _no_work(case: QueueCase) -> str:
    survey = case.survey
    assert survey is not None  # noqa: S101
    told = ", ".join(f"{name} rules out {n} of {survey.known}" for name, n in survey.refused[:SHOWN])
    nearest = f"; smallest change: {survey.nearest[0].text}" if survey.nearest else ""
    return f"No job waits that could be run there{f': {told}' if told else ''}{nearest}."


def _shut(case: QueueCase) -> str:
    if case.gate is not None:
        return "; ".join(one.detail for one in case.gate.shut)
    if case.closings:
        return "; ".join(one.text for one in case.closings)
    return "; ".join(str(bite[-1]) for bite in (case.decided or {}).get("clamps", ())) or "there was no room"


def _who(case: QueueCase, reason: QueueReason) -> str:
    if reason is not QueueReason.NO_ROOM:
        return WHO[reason]
    if case.gate is not None:
        gates = [one.name.value for one in case.gate.shut]
    else:
        gates = [str(bite[0]) for bite in (case.decided or {}).get("clamps", ())]
    others = [gate for gate in gates if gate != ClampName.CLOSED]
    told = [
        *([who_opens_them(case.closings)] if case.closings else []),
        *([who_opens(others)] if others else []),
    ]
    return "; ".join(told) or who_opens(gates)


def _director(case: QueueCase) -> dict[str, Any]:
    """What the last iteration did for the queue, and the arithmetic of the fullest task queue that fits."""
    iteration, decided, survey = case.picture.iteration, case.decided, case.survey
    if iteration is None:
        return {"decided_seconds_ago": None, "looked_at": False, "wanted": None, "room": None, "clamps": [],
                "placed": 0, "lines": []}  # fmt: skip
    name = "/".join(case.place)
    placed = sum(count for _, queue, count in iteration.record["placements"] if queue == name)
    clamps = [
        dict(zip(("clamp", "before", "after", "limit", "text"), bite, strict=True))
        for bite in (decided or {}).get("clamps", ())
    ]
    lines: tuple[str, ...] = ()
    if survey is not None and survey.fullest is not None:
        first, *rest = iteration.lines(survey.fullest)
        lines = (f"Task queue {survey.fullest}: {first}", *(f"  {line}" for line in rest))
    return {
        "decided_seconds_ago": case.age(iteration.at),
        "looked_at": decided is not None,
        "wanted": None if decided is None else decided["wanted"],
        "room": None if decided is None else decided["room"],
        "clamps": clamps,
        "placed": placed,
        "lines": list(lines),
    }
