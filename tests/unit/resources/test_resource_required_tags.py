"""A tag that a queue requires and does not offer: reported with file and line, for each place where it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.resources.conftest import load_cfg

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import QueueTable, load_resources, queue_settings
from lodesman.wire.nodes import QueueId

SITE = """[site.S]
VO = ["lab", "other"]
[site.S.ce.c]
{ce}
[site.S.ce.c.queue.q]
{queue}
[site.S.ce.c.queue.r]
{other}
"""


def load(ce="", queue="", other=""):
    return load_resources([("sites.toml", SITE.format(ce=ce, queue=queue, other=other))])


def faults(**more):
    with pytest.raises(InvalidConfig) as caught:
        load(**more)
    return caught.value.data["faults"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"queue": 'Tag = ["a", "b"]\nRequiredTag = ["b"]'},
        {"queue": 'Tag = "a"\nRequiredTag = "a"'},
        {"queue": 'RequiredTag = ["a"]', "ce": 'Tag = ["a"]'},
        {"ce": 'RequiredTag = ["a"]', "queue": 'Tag = ["a"]', "other": 'Tag = ["a", "b"]'},
        {"queue": 'RequiredTag = ["a"]\nTag = "ANY"'},
        {"queue": "RequiredTag = []"},
    ],
)
def test_what_is_required_and_offered_is_good(more):
    assert load(**more).tree.find(QueueId("S", "c", "q"))


def test_file_line_and_queue_are_reported():
    (fault,) = faults(queue='Tag = ["a"]\nrequiredtag = ["a", "b", "c"]')
    assert (fault["source"], fault["section"], fault["line"]) == ("sites.toml", "site.S.ce.c.queue.q", 7)
    assert fault["message"] == (
        "RequiredTag: queue S/c/q requires b, c and does not offer it: no job could ever run there; name it in Tag, too"
    )


def test_one_line_is_reported_once_however_many_queues_inherit_it():
    (fault,) = faults(ce='RequiredTag = ["a"]')
    assert fault["line"] == 4
    assert "queue S/c/q" in fault["message"]
    (fault,) = faults(ce='RequiredTag = ["a"]', queue='Tag = ["a"]')
    assert "queue S/c/r" in fault["message"]
    assert len(faults(queue='RequiredTag = ["a"]', other='RequiredTag = ["a"]')) == 2


def test_what_holds_for_one_vo():
    (fault,) = faults(queue='Tag = "a"\n[site.S.ce.c.queue.q.vo.lab]\nRequiredTag = ["z"]')
    assert "requires z for VO lab" in fault["message"]
    config = load(queue='Tag = "a"\n[site.S.ce.c.queue.q.vo.lab]\nRequiredTag = ["z"]\nTag = ["z"]')
    assert config.notices == ()


def test_a_file_of_dirac_is_loaded_all_the_same():
    text = "Resources { Sites { LCG { S { CEs { c { Queues { q {\n RequiredTag = GPU\n } } } } } } } }"
    config = load_cfg(text.replace("{", "\n{\n").replace("}", "\n}\n"), source="dirac.cfg")
    (notice,) = config.notices
    assert str(notice).startswith("dirac.cfg, line ")
    assert "RequiredTag: queue S/c/q requires GPU" in notice.message
    assert config.tree.find(QueueId("S", "c", "q"))


TAGS = st.none() | st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True)


@given(ce=st.tuples(TAGS, TAGS), queue=st.tuples(TAGS, TAGS))
def test_a_tree_is_good_if_and_only_if_each_queue_offers_what_it_requires(ce, queue):
    def lines(tags):
        return "\n".join(
            f"{name} = {list(value)}" for name, value in zip(("Tag", "RequiredTag"), tags, strict=True) if value is not None
        )  # fmt: skip

    try:
        config = load(ce=lines(ce), queue=lines(queue), other=lines(queue))
    except InvalidConfig:
        config = None
    offered, required = ({*(ce[n] or ()), *(queue[n] or ())} for n in (0, 1))
    assert (config is not None) == (required <= offered)
    if config is not None:
        table = QueueTable(config, "lab")
        for bit in table.queues:
            settings = queue_settings(table.params(bit), config.types)
            assert set(settings.required_tags) <= set(settings.tags)
