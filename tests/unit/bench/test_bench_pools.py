"""The row of SubmitPools, small: it measures, it checks, and it finds a wrong evaluation."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from bench import pool_world
from bench.oracle import WrongAnswer
from bench.rows import pools

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import compile_requirements, load_resources


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.setattr(pools, "POOLS", 500)
    monkeypatch.setattr(pools, "KEYS", 20)
    monkeypatch.setattr(pools, "ROUNDS", 2)
    monkeypatch.setattr(pools, "resources", partial(pool_world.resources, sites=20))
    monkeypatch.setattr(pools, "many_keys", partial(pool_world.many_keys, sites=20))
    monkeypatch.setattr(pools, "attributes", partial(pool_world.attributes, sites=20))
    monkeypatch.setattr(pools, "EXPRESSIONS", 50)
    return SimpleNamespace(less=lambda full, least=1: max(full // 10, min(full, least)), home=tmp_path)


@pytest.mark.slow
def test_it_measures_and_checks(context):
    evaluated, written, reasons, expressions = pools.measure(context)
    assert (evaluated.row, written.row, reasons.row) == ("pools-evaluate", "pools-write", "pools-reasons")
    assert all(figure.less and figure.value > 0 for figure in (evaluated, written, reasons))
    assert evaluated.details["pairs_checked"] == 40 * 40
    assert 0 < evaluated.details["queues_per_set"] < 40
    assert evaluated.size == "50 sets of Requirements, 40 queues"
    assert expressions.row == "pools-expressions"
    assert expressions.value == min(expressions.samples) > 0
    assert expressions.details["pairs_checked"] == 40 * 40
    assert 0 < expressions.details["queues_per_expression"] < 40
    assert (evaluated.target, reasons.target, written.target) == (0.3, 2.0, None)


def test_a_wrong_evaluation_is_found(context, monkeypatch):
    monkeypatch.setattr(pools, "evaluate", lambda _policy, rows: {row.id: 0 for row in rows})
    with pytest.raises(WrongAnswer, match="is misjudged"):
        pools.measure(context)


def test_pools_are_all_different_and_the_same_each_time():
    types = Policy(load_resources([("q.toml", pool_world.resources(sites=3))])).config.types
    first, again = (list(pool_world.make_pools(300, types)) for _ in range(2))
    assert first == again
    assert len({pool.id for pool in first}) == 300


def test_a_long_set_asks_for_every_key():
    text, wanted = pool_world.many_keys(30, sites=4)
    table = Policy(load_resources([("q.toml", text)])).vo_config(pool_world.VO).table
    assert len(table.queues) == 8
    assert all({f"p{key:03}" for key in range(30)} <= set(table.params(bit)) for bit in table.queues)
    assert len(table.failing(compile_requirements(wanted, table.types))) == 30
