"""Resources and groups from CFG, and many files together."""

from pathlib import Path

import pytest
from tests.unit.resources.conftest import eligible, load_cfg, load_toml

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import (
    FilePosition,
    GroupConfig,
    QueueId,
    effective_params,
    load_resources,
)
from lodesman.wire.vocabulary import Kind, Level

DATA = Path(__file__).parents[2] / "data" / "resources"
LONG = QueueId("LCG.CERN.ch", "ce130.cern.example", "condor/long")
SHORT = QueueId("LCG.CERN.ch", "ce130.cern.example", "condor::short")


def read(name):
    return (DATA / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def config():
    return load_cfg(read("grid.cfg"), source="grid.cfg")


def values(config, queue, vo=""):
    params = effective_params(config.tree, queue, vo=vo, types=config.types)
    return {found.name: found.value for found in params.values()}


def test_the_tree(config):
    assert list(config.tree.queue_ids()) == [LONG, SHORT, QueueId("Lonely.Site.org", "only", "one")]
    assert config.tree.sites["LCG.CERN.ch"].grid == "LCG"
    assert config.tree.sites["Lonely.Site.org"].grid == ""


def test_values_of_declared_types(config):
    found = values(config, LONG)
    assert found["MaxTotalJobs"] == 1000
    assert found["WaitingToRunningRatio"] == 0.1
    assert found["maxCPUTime"] == 7776
    assert found["ROOT"] == "6.28"
    assert found["VO"] == ("physvo",)
    assert found["Platform"] == ("x86_64-el9", "x86_64-el8")
    assert found["Scratch"] == 10


def test_values_of_undeclared_parameters_are_texts_and_commas_separate(config):
    found = values(config, LONG)
    assert found["architecture"] == "x86_64"
    assert found["SE cern"] == ("CERN-RAW", "CERN-disk")
    assert found["CE"] == ("ce130.cern.example", "ce207.cern.example")
    assert found["Coordinates"] == "6.0458:46.2325"


def test_the_queue_beats_the_ce_and_tags_unite(config):
    assert values(config, LONG)["SI00"] == 2500
    assert values(config, SHORT)["SI00"] == 3755
    assert values(config, LONG)["Tag"] == ("MultiProcessor", "GPU")
    assert values(config, SHORT)["Tag"] == ("MultiProcessor",)


def test_sections_named_after_a_vo_are_overlays(config):
    assert values(config, SHORT, "physvo")["Scratch"] == 100
    assert values(config, SHORT, "physvo")["Tag"] == ("MultiProcessor", "Fast")
    assert values(config, SHORT, "physvo")["SoftwareTag"] == ("Geant4", "DaVinci", "Gauss")
    assert values(config, SHORT, "other")["SoftwareTag"] == ("Geant4",)


def test_sections_in_vos_are_overlays(config):
    assert values(config, SHORT, "biovo")["Scratch"] == 5 * 1024


def test_every_value_knows_where_it_is_written(config):
    found = effective_params(config.tree, SHORT, vo="physvo", types=config.types)
    section = "/Resources/Sites/LCG/LCG.CERN.ch/CEs/ce130.cern.example/Queues/condor::short"
    lines = read("grid.cfg").splitlines()
    for name, level, path in (
        ("scratch", Level.QUEUE_VO, f"{section}/physvo"),
        ("cputime", Level.QUEUE, section),
        ("softwaretag", Level.SITE_VO, "/Resources/Sites/LCG/LCG.CERN.ch/physvo"),
    ):
        entry = found[name]
        assert entry.level is level
        assert entry.source == FilePosition(file="grid.cfg", section=path, line=entry.source.line)
        assert lines[entry.source.line - 1].strip().startswith(entry.name)


def test_types(config):
    assert config.types.get("SoftwareTag").merge
    assert config.types.get("root").kind is Kind.VERSION
    assert config.types.get("Scratch").unit == "GB"
    assert config.types.get("AllowedJobTypes") is None
    assert config.types.get("DefaultCPUTime") is None


def test_groups(config):
    assert dict(config.groups) == {
        "phys_user": GroupConfig(name="phys_user", vo="physvo"),
        "phys_prod": GroupConfig(
            name="phys_prod", vo="physvo", share=3000.0, job_sharing=True, background=True
        ),
        "bio_user": GroupConfig(name="bio_user", vo="biovo", share=0.001),
        "hosts": GroupConfig(name="hosts"),
    }
    assert config.groups["phys_user"].share == 1000.0
    assert config.vos == ("biovo", "physvo")


def test_what_is_odd_is_noticed(config):
    texts = [str(notice) for notice in config.notices]
    assert any("JobShare: a share below 0.001" in text for text in texts)
    assert len(texts) == 1


def test_a_vo_that_only_the_caller_knows():
    text = (
        "Resources{\nSites{\nG{\nS{\nP = 1\nnewvo{\nP = 2\n}\nCEs{\nc{\nQueues{\nq{\n}\n}\n}\n}\n}\n}\n}\n}\n"
    )
    here = QueueId("S", "c", "q")
    assert values(load_cfg(text, vos=["newvo"]), here, "newvo")["P"] == "2"
    passed_over = load_cfg(text)
    assert values(passed_over, here, "newvo")["P"] == "1"
    assert "newvo" in passed_over.notices[0].message


def test_all_faults_are_reported_at_once():
    with pytest.raises(InvalidConfig) as caught:
        load_cfg(read("faulty.cfg"), source="faulty.cfg")
    faults = caught.value.data["faults"]
    assert [fault["message"].partition(":")[0] for fault in faults] == [
        "Memory",
        "Speed",
        "JobShare",
        "AllowBackgroundTQs",
        "MaxRAM",
        "maxram is given twice",
        "MaxWaitingJobs",
        "MaxTotalJobs",
        "CPUScalingFactor",
    ]
    lines = read("faulty.cfg").splitlines()
    for fault in faults:
        assert fault["source"] == "faulty.cfg"
        assert fault["message"].split()[0].rstrip(":") in lines[fault["line"] - 1]
        assert fault["section"].startswith("/")
    assert caught.value.data["line"] == faults[0]["line"]
    assert "9 faults" in caught.value.message
    assert "and 4 more" in caught.value.message


def test_a_syntax_fault_has_its_position():
    with pytest.raises(InvalidConfig) as caught:
        load_cfg("Resources\n{\n  Sites\n", source="broken.cfg")
    faults = [(fault["source"], fault["line"]) for fault in caught.value.data["faults"]]
    assert faults == [("broken.cfg", 1), ("broken.cfg", 3)]


def test_a_site_under_two_grids():
    text = "Resources\n{\nSites\n{\nA\n{\nS\n{\n}\n}\nB\n{\nS\n{\n}\n}\n}\n}\n"
    with pytest.raises(InvalidConfig, match="stands under two grids, A and B"):
        load_cfg(text)


def test_options_for_all_ces_of_a_site_and_all_queues_of_a_ce():
    text = """
Resources
{
  Sites
  {
    LCG
    {
      LCG.CERN.ch
      {
        CEs
        {
          MaxRAM = 2000
          Tag = Common
          first
          {
            MaxRAM = 8000
            Queues
            {
              q
              {
              }
              cputime = 100
              r
              {
                CPUTime = 7
              }
            }
          }
          second
          {
            tag = Own
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
}
"""
    config = load_cfg(text, source="f.cfg")

    def value(ce, queue, name):
        params = effective_params(config.tree, QueueId("LCG.CERN.ch", ce, queue), types=config.types)
        return params[name].value if name in params else None

    assert [value(ce, "q", "maxram") for ce in ("first", "second")] == [8000, 2000]
    assert [value(ce, "q", "tag") for ce in ("first", "second")] == [("Common",), ("Own",)]
    assert [value("first", queue, "cputime") for queue in ("q", "r")] == [100, 7]
    assert value("second", "q", "cputime") is None


def test_a_comment_behind_a_value_is_part_of_it_as_in_dirac():
    text = "Resources\n{\nSites\n{\nS\n{\nName = X # its name\nMaxRAM = 5 # MB\nCEs\n{\n}\n}\n}\n}\n"
    with pytest.raises(InvalidConfig, match="MaxRAM: unit '# mb' does not fit"):
        load_cfg(text)


def test_an_empty_value_of_a_number_is_not_given():
    text = (
        "Resources\n{\nSites\n{\nS\n{\nCPUTime =\nTag =\nCEs\n{\nc\n{\nQueues\n{\nq\n{\n}\n}\n}\n}\n}\n}\n}\n"
    )
    config = load_cfg(text)
    found = values(config, QueueId("S", "c", "q"))
    assert "CPUTime" not in found
    assert found["Tag"] == ()
    assert [notice.message for notice in config.notices] == ["CPUTime is empty and counts as not given"]


def test_an_empty_text_is_an_empty_tree():
    config = load_cfg("")
    assert list(config.tree.queue_ids()) == []
    assert dict(config.groups) == {}


def test_sites_without_queues_are_noticed():
    config = load_cfg("Resources\n{\nSites\n{\nG\n{\nS\n{\n}\nT\n{\nCEs\n{\nc\n{\n}\n}\n}\n}\n}\n}\n")
    assert [notice.message for notice in config.notices] == ["site S has no CE", "CE c has no queue"]


# --- many files ------------------------------------------------------------------------------------


def test_cfg_and_toml_say_the_same():
    cfg, toml = load_cfg(read("grid.cfg")), load_toml(read("grid.toml"))
    assert list(cfg.tree.queue_ids()) == list(toml.tree.queue_ids())
    for queue in cfg.tree.queue_ids():
        for vo in ("", "physvo", "biovo"):
            in_cfg, in_toml = values(cfg, queue, vo), values(toml, queue, vo)
            assert {name: in_cfg[name] for name in in_toml} == in_toml
    assert cfg.types.get("Scratch") == toml.types.get("Scratch")
    assert cfg.types.version == toml.types.version
    assert dict(cfg.groups) | dict(toml.groups) == dict(cfg.groups)


def test_a_tree_may_be_spread_over_files():
    config = load_resources(
        [
            ("sites.toml", '[site.S.ce.c.queue.q]\nMemory = "4 GB"\n[site.S.vo.v]\nP = 2'),
            ("more.cfg", "Resources\n{\nSites\n{\nG\n{\nS\n{\nP = 1\nv\n{\nZ = 3\n}\n}\n}\n}\n}\n"),
            ("types.toml", '[job_description]\nP = "number"\nZ = "number"'),
        ]
    )
    here = QueueId("S", "c", "q")
    assert config.tree.sites["S"].grid == "G"
    assert values(config, here)["P"] == 1
    found = values(config, here, "v")
    assert (found["P"], found["Z"], found["Memory"]) == (2, 3, 4096)
    assert eligible(config, {"Z": 3}, "v") == {"S": {"c": ["q"]}}


def test_a_parameter_twice_in_two_files_is_a_fault():
    with pytest.raises(InvalidConfig) as caught:
        load_resources([("a.toml", "[site.S]\nP = 1"), ("b.toml", "\n[site.S]\np = 2")])
    (fault,) = caught.value.data["faults"]
    assert (fault["source"], fault["line"]) == ("b.toml", 3)
    assert "a.toml, line 2" in fault["message"]


def test_unreadable_files_are_faults_among_the_others():
    with pytest.raises(InvalidConfig) as caught:
        load_resources(
            [
                ("a.cfg", "Resources\n{"),
                ("b.toml", "x = ["),
                ("c.toml", "[site.S]\nMaxRAM = 'lots'"),
                ("d.cfg", ""),
            ]
        )
    assert [(fault["source"], fault["line"]) for fault in caught.value.data["faults"]] == [
        ("a.cfg", 1),
        ("b.toml", 1),
        ("c.toml", 2),
    ]


def declaring(value):
    return load_cfg(f"Operations\n{{\nJobDescription\n{{\nScratch = {value}\n}}\n}}\n", source="d.cfg")


@pytest.mark.parametrize("value", ["number GB", "number\tGB", "number  GB", " Number GB "])
def test_the_words_of_a_declaration_stand_apart(value):
    config = declaring(value)
    assert config.types.get("Scratch").unit == "GB"
    assert config.notices == ()


@pytest.mark.parametrize(
    ("value", "word", "meant"),
    [
        ("numbr", "numbr", "number"),
        ("numberx GB", "numberx", "number"),
        ("Lists merge", "Lists", "list"),
        ("bool", "bool", "boolean"),
    ],
)
def test_a_misspelt_type_gets_a_notice_with_a_suggestion(value, word, meant):
    config = declaring(value)
    assert config.types.get("Scratch") is None
    (notice,) = config.notices
    assert notice.message == (f"Scratch: {word!r} is not a type (did you mean {meant}?); it is passed over")
    assert (notice.source.file, notice.source.line) == ("d.cfg", 5)


@pytest.mark.parametrize("value", ["User, Test", "86400", "", "MPI"])
def test_what_else_dirac_keeps_beside_declarations_is_not_odd(value):
    assert declaring(value).notices == ()
