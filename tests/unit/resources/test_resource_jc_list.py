"""JcList in the configuration: both languages, inheritance, faults and notices with file and line."""

from __future__ import annotations

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources, written_jc_lists
from lodesman.server.config import load_config

TOML = """[site.S]
jc_list = "NO_JC,app.v1,[@gpu=ANY_JC]"
[site.S.ce.c.queue.q]
[site.S.ce.c.queue.own]
JcList = "other"
[site.S.ce.d.queue.q]
[site.S.ce.d.vo.lab]
jc_list = "ANY_JC, NO_JC"
"""
CFG = """Resources
{
  Sites
  {
    S
    {
      JcList = NO_JC,app.v1,[@gpu=ANY_JC]
      CEs
      {
        c
        {
          Queues
          {
            q
            {
            }
            own
            {
              jc_list = other
            }
          }
        }
        d
        {
          VO = lab, ego
          Queues
          {
            q
            {
              JcList = ANY_JC, NO_JC
            }
          }
        }
      }
    }
  }
}
"""


@pytest.mark.parametrize(("file", "text"), [("s.toml", TOML), ("s.cfg", CFG)])
def test_a_list_is_inherited_and_replaced_as_other_parameters_are(file, text):
    offers = Policy(load_resources([(file, text)], vos=["lab"])).vo_config("lab").offers
    found = {f"{one.queue.ce}/{one.queue.queue}": one.settings.jc_lists for one in offers}
    assert {name: str(lists) for name, lists in found.items()} == {
        "c/q": "NO_JC,app.v1,[@gpu=ANY_JC]", "c/own": "other", "d/q": "ANY_JC,NO_JC",
    }  # fmt: skip
    assert {f"{one.queue.ce}/{one.queue.queue}": one.request.job_classes for one in offers} == {
        "c/q": None, "c/own": ("other",), "d/q": None,
    }  # fmt: skip


def test_where_each_list_is_written():
    config = load_resources([("s.toml", TOML)], vos=["lab"])
    found = [(place, source.line, str(lists)) for place, source, lists in written_jc_lists(config.tree)]
    assert found == [
        ("S", 2, "NO_JC,app.v1,[@gpu=ANY_JC]"), ("S/c/own", 5, "other"), ("S/d", 8, "ANY_JC,NO_JC"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('"NO_JC,!app"', "the name '!app' contains '!'"),
        ('"NONE,app"', "NONE stands alone"),
        ('"app,[@gpu=other"', "'[' is never closed"),
        ('""', "is empty"),
        ('["NO_JC", "app"]', "one value is expected, not a list"),
    ],
)
def test_a_fault_has_its_file_and_line(value, words):
    with pytest.raises(InvalidConfig) as refused:
        load_resources([("s.toml", f"[site.S.ce.c.queue.q]\nSlots = 4\njc_list = {value}\n")])
    (fault,) = refused.value.data["faults"]
    assert (fault["source"], fault["line"]) == ("s.toml", 3)
    assert words in fault["message"]


def test_names_without_effect_are_a_notice():
    (notice,) = load_resources([("s.toml", '[site.S.ce.c.queue.q]\njc_list = "ANY_JC,app"\n')]).notices
    assert (str(notice.message), notice.source.line) == (
        "JcList: jc_list: app has no effect beside ANY_JC",
        2,
    )


def test_two_spellings_of_it_are_one_parameter():
    with pytest.raises(InvalidConfig, match="given twice"):
        load_resources([("s.toml", '[site.S.ce.c.queue.q]\njc_list = "app"\nJcList = "other"\n')])


def test_hosts_on_which_it_is_ambiguous_are_named_when_the_configuration_is_read(tmp_path):
    (tmp_path / "groups").write_text(
        "group_name @gpu\nhostlist node7 node8\ngroup_name @big\nhostlist node8\n"
    )
    (tmp_path / "sites.toml").write_text(
        '[site.S.ce.c.queue.q]\njc_list = "ANY_JC,[@gpu=app],[@big=NO_JC],[@tape=NONE]"\n'
    )
    own = tmp_path / "lode.toml"
    own.write_text('[resources]\nfiles = ["sites.toml"]\n[gridengine]\nfiles = ["groups"]\n')
    notices = load_config(own).resources.notices
    assert {one.source.line for one in notices} == {2}
    assert [one.message.partition(": ")[2] for one in notices] == [
        "jc_list names the host group @tape, which no file defines",
        "jc_list is ambiguous on node8: @big and @gpu differ; give the host a list of its own",
    ]
