"""SubmitPools: all sets of Requirements against all queues, the write alone, and one very long set with its reasons.

The best of a few rounds counts: other load can only make a figure worse.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure
from bench.oracle import WrongAnswer
from bench.pool_world import VO, attributes, make_expressions, make_pools, many_keys, resources

from lodesman.decide.masks.bits import bits, nearest, refused
from lodesman.decide.matching import wanted_of
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.decide.resources.expression import expression_of
from lodesman.server.loops.refresh import PoolKeeper, evaluate
from lodesman.server.store import SqliteDatabase
from lodesman.server.store.journal import Change, Journal
from lodesman.server.store.submit_pools import PoolRow
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.submit_pools import number_queues, refresh_pools
from lodesman.wire import inner_calls
from lodesman.wire.call import Call, Nothing
from lodesman.wire.service import PassNumber, RemovedCount

POOLS, KEYS, ROUNDS, CHECKED = 10_000, 200, 5, 40
EXPRESSIONS, EXPRESSION_ROUNDS = 500, 3
EVALUATE_S, REASONS_MS = 0.3, 2.0
INSERT = "INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at) VALUES (?,?,?,x'',0)"


def measure(context: Context) -> list[Figure]:
    """Evaluation by masks, checked pair by pair; the swap at the writer; a set of 200 keys."""
    policy = Policy(load_resources([("queues.toml", resources())]))
    pools = list(make_pools(context.less(POOLS, CHECKED), policy.config.types))
    queues = len(policy.vo_config(VO).table.queues)
    samples = [_evaluate(policy, pools) for _ in range(ROUNDS)]
    masks = evaluate(policy, pools)
    checked = _check(policy, pools, masks)
    written = _write(context.home / "pools.db", policy, pools)
    long_set = _long_set()
    count = context.less(EXPRESSIONS, CHECKED)
    expressions, of_expressions = _expressions(context, count)
    size = f"{len(pools):,} sets of Requirements, {queues:,} queues"
    mean = sum(mask.bit_count() for mask in masks.values()) / len(masks)
    details = {"queues_per_set": mean, "pairs_checked": checked}
    return [
        Figure(row="pools-evaluate", what="all SubmitPools evaluated, CPU time", unit="s", value=min(samples),
               target=EVALUATE_S, less=True, samples=samples, size=size, details=details),
        Figure(row="pools-write", what="all of them changed: the writer's part", unit="s", value=written["changed"],
               less=True, size=size, details=written),
        Figure(row="pools-reasons", what=f"a set of {KEYS} keys with its reasons", unit="ms",
               value=1e3 * min(long_set), target=REASONS_MS, less=True, samples=long_set,
               size=f"{KEYS} keys, 2,000 queues"),
        Figure(row="pools-expressions", what="expressions read and judged, nothing known before, CPU time", unit="s",
               value=min(expressions), less=True, samples=expressions, details=of_expressions,
               size=f"{count} expressions over 30 attributes, 2,000 queues"),
    ]  # fmt: skip


def _evaluate(policy: Policy, pools: Sequence[PoolRow]) -> float:
    begun = time.process_time()
    evaluate(policy, pools)
    return time.process_time() - begun


def _check(policy: Policy, pools: Sequence[PoolRow], masks: Mapping[str, int]) -> int:
    """The oracle: reasons, queue by queue. Returns the number of pairs checked; raises WrongAnswer."""
    table = policy.vo_config(VO).table
    for pool in random.Random(1).sample(pools, CHECKED):
        criteria = compile_requirements(wanted_of(pool.requirements), table.types)
        for bit, queue in table.queues.items():
            if bool(table.reasons(bit, criteria)) == bool(masks[pool.id] >> bit & 1):
                raise WrongAnswer(f"{queue} is misjudged for {pool.requirements}")
    return CHECKED * len(table.queues)


def _write(path: Path, policy: Policy, pools: Sequence[PoolRow]) -> dict[str, float]:
    """Seconds of the command that swaps all pools, and of one that changes nothing; commits included."""
    writer = SqliteDatabase(path).writer()
    with writer:
        writer.connection.executemany(INSERT, [(pool.id, pool.vo, pool.requirements) for pool in pools])
    live = WriterState(writer, rng=random.Random(1), now=0.0)
    journal = Journal(writer)
    journal.start()
    journal.call(Change(number_queues, live, list(policy.bits)))
    took: list[float] = []

    def post(call: Call[Nothing, Any, Any], body: Any) -> Any:
        begun = time.perf_counter()
        if call is not inner_calls.POOL_PASS:
            return RemovedCount(0)
        row = journal.call(Change(refresh_pools, live, body, policy.digest))
        took.append(time.perf_counter() - begun)
        return PassNumber(row.id, row.at)

    reader = SqliteDatabase(path).reader()
    keeper = PoolKeeper(reader, post, refresh_seconds=1.0, grace_seconds=1e9)
    keeper.tick(policy, 0.0)
    keeper.tick(policy, 2.0)
    journal.close()
    for db in (reader, writer):
        db.close()
    return {"changed": took[0], "unchanged": took[1]}


def _expressions(context: Context, count: int) -> tuple[list[float], dict[str, float]]:
    """Seconds of CPU time by round, and what was checked."""
    samples, text = [], attributes()
    for _ in range(context.less(EXPRESSION_ROUNDS)):
        policy = Policy(load_resources([("attributes.toml", text)]))
        pools = list(make_expressions(count, policy.config.types))
        expression_of.cache_clear()
        policy.vo_config(VO)
        samples.append(_evaluate(policy, pools))
    masks = evaluate(policy, pools)
    mean = sum(mask.bit_count() for mask in masks.values()) / len(masks)
    return samples, {"queues_per_expression": mean, "pairs_checked": _check(policy, pools, masks)}


def _long_set() -> list[float]:
    """Seconds to compile one long set, compare it with every queue and count what each key excludes."""
    text, wanted = many_keys(KEYS)
    table = Policy(load_resources([("keys.toml", text)])).vo_config(VO).table
    samples = []
    for _ in range(ROUNDS * 4):
        begun = time.perf_counter()
        criteria = compile_requirements(wanted, table.types)
        failing = table.failing(criteria)
        planes = list(zip((one.parameter for one in criteria), failing, strict=True))
        refused(planes)
        near = next(bits(nearest(planes, table.full)))
        against = [one for one, mask in zip(criteria, failing, strict=True) if mask >> near & 1]
        table.reasons(near, tuple(against))
        samples.append(time.perf_counter() - begun)
    return samples
