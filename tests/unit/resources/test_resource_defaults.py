"""What CEs have by default: for all of them, and for those of a type; the weakest levels of all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.resources.conftest import eligible, load_cfg, load_toml, reasons

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import (
    QueueId,
    effective_params,
    load_resources,
)
from lodesman.decide.resources.inherit import _ce_type
from lodesman.wire.nodes import NodePath
from lodesman.wire.vocabulary import Level

HERE = QueueId("S", "c", "q")
TOML = """
[ce_defaults]
A = 1
B = 1
C = 1
Tag = "default"
Site = "never"
[ce_type.Fast]
B = 2
C = 2
Tag = "type"
[ce_type.Slow]
B = 9
[site.S]
C = 3
Tag = "site"
[site.S.ce.c]
CEType = "Fast"
Tag = "ce"
[site.S.ce.c.queue.q]
Tag = "queue"
[site.S.ce.plain.queue.q]
"""


def found(config, name, queue=HERE, vo=""):
    one = effective_params(config.tree, queue, vo=vo, types=config.types).get(name)
    return None if one is None else (one.value, one.level)


def test_the_order_of_default_type_and_site():
    config = load_toml(TOML)
    assert found(config, "a") == (1, Level.DEFAULT)
    assert found(config, "b") == (2, Level.CE_TYPE)
    assert found(config, "c") == (3, Level.SITE)
    assert found(config, "site") == ("S", Level.SITE)


def test_a_ce_without_a_type_has_what_all_have():
    config = load_toml(TOML)
    plain = QueueId("S", "plain", "q")
    assert found(config, "b", plain) == (1, Level.DEFAULT)
    assert found(config, "tag", plain) == (("default", "site"), Level.SITE)


def test_lists_that_merge_begin_with_the_defaults():
    one = effective_params(load_toml(TOML).tree, HERE, types=load_toml(TOML).types)["tag"]
    assert one.value == ("default", "type", "site", "ce", "queue")
    assert one.levels == (Level.DEFAULT, Level.CE_TYPE, Level.SITE, Level.CE, Level.QUEUE)


def test_sites_have_no_defaults():
    config = load_toml(TOML)
    params = effective_params(config.tree, NodePath("S"), types=config.types)
    assert set(params) == {"site", "c", "tag"}
    assert "a" not in effective_params(config.tree, NodePath("S"), types=config.types)
    assert effective_params(config.tree, NodePath("S", "plain"), types=config.types)["a"].value == 1


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ('CEType = "Fast"', "Fast"),
        ('Backend = "Fast"', "Fast"),
        ('CEType = "Slow"\nBackend = "Fast"', "Slow"),
        ('CEType = ""\nBackend = "Fast"', "Fast"),
        ('CEType = "fast"', "fast"),
        ("Other = 1", ""),
    ],
)
def test_what_names_the_type_of_a_ce(lines, kind):
    config = load_toml(f"{TOML.partition('[site.S]')[0]}[site.S.ce.c]\n{lines}\n[site.S.ce.c.queue.q]\n")
    assert _ce_type(effective_params(config.tree, HERE, types=config.types)) == kind
    assert found(config, "b")[0] == {"Fast": 2, "Slow": 9}.get(kind, 1)


def test_the_type_may_come_from_the_site_and_from_the_defaults():
    of_site_text = '[ce_type.T]\nP = 1\n[site.S]\nCEType = "T"\n[site.S.ce.c.queue.q]\n'
    assert found(load_toml(of_site_text), "p") == (1, Level.CE_TYPE)
    of_all = '[ce_defaults]\nCEType = "T"\n[ce_type.T]\nP = 1\n[site.S.ce.c.queue.q]\n'
    assert found(load_toml(of_all), "p") == (1, Level.CE_TYPE)


def test_a_vo_may_see_a_ce_as_of_another_type_and_a_queue_may_not_change_it():
    text = '[ce_type.T]\nP = 1\n[site.S.ce.c.vo.v]\nCEType = "T"\n[site.S.ce.c.queue.q]\nBackend = "T"\n'
    config = load_toml(text)
    assert found(config, "p", vo="v") == (1, Level.CE_TYPE)
    assert found(config, "p") is None


def test_an_access_list_by_default():
    config = load_toml(
        '[ce_defaults]\nVO = ["v"]\n[site.S]\nVO = []\n[site.S.ce.c.queue.q]\n[site.T.ce.c.queue.q]\nVO = "w"\n'
    )
    assert eligible(config, vo="v") == {"S": {"c": ["q"]}}
    assert eligible(config, vo="w") == {"T": {"c": ["q"]}}


def test_cfg_and_toml_say_the_same():
    cfg = """
Resources
{
  Computing
  {
    CEDefaults
    {
      A = 1
      Tag = default
    }
    Fast
    {
      B = 2
    }
  }
  Sites
  {
    S
    {
      CEs
      {
        c
        {
          CEType = Fast
          Queues
          {
            q
            {
            }
          }
        }
      }
    }
  }
}
"""
    for config in (load_cfg(cfg), load_toml(TOML)):
        assert [found(config, name)[1] for name in ("a", "b")] == [Level.DEFAULT, Level.CE_TYPE]


def test_places_of_defaults():
    config = load_toml(TOML, source="f.toml")
    params = effective_params(config.tree, HERE, types=config.types)
    assert (params["a"].source.section, params["a"].source.line) == ("ce_defaults", 3)
    assert (params["b"].source.section, params["b"].source.line) == ("ce_type.Fast", 9)


def test_defaults_of_two_files_come_together():
    config = load_resources(
        [
            ("a.toml", "[ce_defaults]\nA = 1\n[site.S.ce.c.queue.q]\n"),
            ("b.cfg", "Resources\n{\nComputing\n{\nCEDefaults\n{\nB = 2\n}\n}\n}\n"),
        ]
    )
    assert (found(config, "a")[0], found(config, "b")[0]) == (1, "2")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[ce_defaults]\nMaxRAM = 'lots'\n", 2, "MaxRAM: 'lots' is not a number"),
        ("\n[ce_type.T]\nMaxTotalJobs = 1.5\n", 3, "MaxTotalJobs: it must be a whole number"),
        ("ce_defaults = 1\n", 1, "ce_defaults is a table"),
        ("[ce_type]\nT = 1\n", 2, "T is a value; a table [ce_type.NAME] is expected"),
        ("[CEDefaults]\nA = 1\n", 1, "the table is called 'ce_defaults'"),
        ("[ce_defaults.vo.v]\nA = 1\n", 1, "table 'vo' has no meaning here"),
    ],
)
def test_faults_of_defaults_have_their_place(text, line, message):
    with pytest.raises(InvalidConfig) as caught:
        load_toml(text)
    (fault,) = caught.value.data["faults"]
    assert (fault["line"], fault["message"].startswith(message)) == (line, True)


def test_sections_in_defaults_are_passed_over_with_a_notice():
    text = "Resources\n{\nComputing\n{\nCEDefaults\n{\nA = 1\nlhcb\n{\nB = 2\n}\n}\n}\n}\n"
    (notice,) = load_cfg(text, source="f.cfg").notices
    assert str(notice).startswith(
        "f.cfg, line 8, /Resources/Computing/CEDefaults/lhcb: section lhcb is passed over"
    )


levels = st.dictionaries(st.sampled_from(["of_all", "of_type", "site", "ce", "queue"]), st.integers(1, 3))


@given(levels, st.integers(1, 3))
def test_the_masks_of_all_queues_know_the_defaults(said, wanted):
    """The table that claims are decided by, and the walk through the tree, see the same values."""
    heads = {
        "of_all": "ce_defaults",
        "of_type": "ce_type.T",
        "site": "site.S",
        "ce": "site.S.ce.c",
        "queue": "site.S.ce.c.queue.q",
    }
    text = "".join(f"[{heads[level]}]\nP = {said[level]}\n" for level in heads if level in said)
    text += '[site.R]\nCEType = "T"\n[site.R.ce.c.queue.q]\n'
    text += "" if {"site", "ce", "queue"} & set(said) else "[site.S.ce.c.queue.q]\n"
    config = load_toml(text)
    sites = set(eligible(config, {"P": wanted}))
    assert sites == {queue.site for queue, found in reasons(config, {"P": wanted}).items() if not found}
    assert ("R" in sites) is (said.get("of_type", said.get("of_all", 0)) >= wanted)
