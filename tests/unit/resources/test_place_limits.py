"""Limits of sites and CEs, out of CFG and TOML: what is read, and each fault with its line."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.unit.resources.conftest import load_cfg, load_toml

from lodesman.base.errors import InvalidConfig
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import load_resources
from lodesman.decide.resources.place_limits import FIELDS
from lodesman.languages.jobs.attributes import by_name

CFG = """Resources { Sites { LCG { LCG.A.org { CEs { ce1 { Queues { q { CPUTime = 9
} } } } } } } }
Operations
{
  Defaults
  {
    JobScheduling
    {
      RunningLimit
      {
        LCG.A.org
        {
          MaxRunningJobs = 100
          JobType
          {
            Merge = 20
            User = 0
          }
          CEs
          {
            ce1
            {
              OwnerGroup
              {
                prod = 5
              }
            }
          }
        }
      }
      MatchingDelay
      {
        LCG.A.org
        {
          JobType
          {
            Merge = 10
            MCSimulation = 0
          }
        }
      }
    }
  }
}
"""
TOML = """
[site."LCG.A.org".ce.ce1.queue.q]
CPUTime = 9
[site."LCG.A.org".running_limit]
MaxRunningJobs = 100
JobType = { Merge = 20, User = 0 }
[site."LCG.A.org".ce.ce1.running_limit.OwnerGroup]
prod = 5
[site."LCG.A.org".matching_delay]
JobType.Merge = 10
JobType.MCSimulation = 0
"""
FOUND = {
    "RunningLimit/LCG.A.org/MaxRunningJobs": 100,
    "RunningLimit/LCG.A.org/JobType/Merge": 20,
    "RunningLimit/LCG.A.org/JobType/User": 0,
    "RunningLimit/LCG.A.org/CEs/ce1/OwnerGroup/prod": 5,
    "MatchingDelay/LCG.A.org/JobType/Merge": 10,
}


def numbers(config):
    return {one.name: one.number for one in config.limits}


def lines(config):
    return {one.name: one.source.line for one in config.limits}


def test_both_languages_say_the_same():
    cfg, toml = load_cfg(CFG, source="a.cfg"), load_toml(TOML)
    assert numbers(cfg) == numbers(toml) == FOUND
    assert set(cfg.limits) == set(toml.limits)
    assert not cfg.notices
    assert lines(cfg)["RunningLimit/LCG.A.org/CEs/ce1/OwnerGroup/prod"] == 25
    assert lines(toml) == dict(zip(FOUND, (5, 6, 6, 8, 10), strict=True))


@pytest.mark.parametrize(
    "form", [str, lambda text: text.replace("  Defaults\n  {\n", "").replace("  }\n}\n", "}\n")]
)
def test_operations_of_one_set_up_and_of_all(form):
    assert numbers(load_cfg(form(CFG))) == FOUND


@pytest.mark.parametrize("switch", ["CheckJobLimits", "CheckMatchingDelay"])
def test_diracs_switches_turn_limits_off(switch):
    off = load_cfg(CFG.replace("JobScheduling\n    {", f"JobScheduling\n    {{\n{switch} = False"))
    kind = "RunningLimit" if switch == "CheckJobLimits" else "MatchingDelay"
    assert numbers(off) == {name: n for name, n in FOUND.items() if not name.startswith(kind)}
    (notice,) = off.notices
    assert notice.message == f"{kind} limits nothing: {switch} is off"
    assert notice.source.line == {"RunningLimit": 10, "MatchingDelay": 32}[kind]


@pytest.mark.parametrize(
    ("changed", "to", "line", "words"),
    [
        ("Merge = 20", "Merge = -1", 6, "at least 0"),
        ("Merge = 20", "Merge = 2.5", 6, "a whole number"),
        ("Merge = 20", 'Merge = "many"', 6, "many"),
        ("JobType = {", "JobTyp = {", 6, "did you mean JobType?"),
        ("JobType = {", "Colour = {", 6, "limits are by JobType, Owner,"),
        ("MaxRunningJobs = 100", "Jobs = 100", 5, "or MaxRunningJobs for all jobs"),
        ("JobType.Merge = 10", "MaxRunningJobs = 10", 10, "an attribute with its values is expected"),
        (".ce.ce1.running_limit", ".ce.ce1.queue.q.running_limit", 7, "has no meaning here"),
        (".ce.ce1.running_limit", ".ce.ce1.Running_Limit", 7, "has no meaning here"),
    ],
)
def test_faults(changed, to, line, words):
    with pytest.raises(InvalidConfig) as caught:
        load_toml(TOML.replace(changed, to, 1))
    (fault,) = caught.value.data["faults"]
    assert words in fault["message"]
    assert fault["line"] == line


def test_what_is_not_a_table_is_a_fault():
    with pytest.raises(InvalidConfig, match="running_limit is a table"):
        load_toml("[site.A]\nrunning_limit = 5\n")


def test_two_files_must_agree():
    other = '[site."LCG.A.org".running_limit]\nJobType = { Merge = 21 }\n'
    both = [("a.toml", TOML), ("b.toml", other)]
    with pytest.raises(InvalidConfig, match="Merge is given twice: 21 here"):
        load_resources(both)
    assert numbers(load_resources([both[0], ("b.toml", other.replace("21", "20"))])) == FOUND


def test_limits_of_unknown_places_are_noticed():
    found = load_cfg(CFG.replace("ce1", "ce2", 1), source="a.cfg")
    assert [one.message for one in found.notices] == [
        "RunningLimit: no CE is called LCG.A.org/ce1, so this limits nothing"
    ]
    assert numbers(found) == FOUND


def test_attributes_are_spelled_as_in_descriptions_and_are_fields_of_keys():
    for name, field in FIELDS.items():
        attribute = by_name(name)
        assert attribute is not None
        assert attribute.field == field
    assert set(FIELDS.values()) <= {one.name for one in fields(TaskQueueKey)}
