"""One configuration from many files: put together as DIRAC does it, contradictions refused, all faults at once."""

from itertools import permutations

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import (
    Fault,
    FilePosition,
    GroupConfig,
    QueueId,
    effective_params,
    load_resources,
)

HERE = QueueId("S", "c", "q")


def cfg(body, *, sections=("Resources", "Sites", "G", "S")):
    """A CFG text with a body inside nested sections."""
    return "".join(f"{name}\n{{\n" for name in sections) + body + "\n" + "}\n" * len(sections)


def faults_of(*texts):
    with pytest.raises(InvalidConfig) as caught:
        load_resources(texts)
    return [(fault["source"], fault["line"], fault["message"]) for fault in caught.value.data["faults"]]


def values(config, queue=HERE, vo=""):
    params = effective_params(config.tree, queue, vo=vo, types=config.types)
    return {name: one.value for name, one in params.items()}


PARTS = {
    "site.toml": '[site.S]\nP = 1\n[site.S.ce.c]\nR = "ce"\n',
    "queue.toml": '[site.S.ce.c.queue.q]\nMemory = "4 GB"\n[site.S.vo.v]\nP = 2\n',
    "more.cfg": cfg("Z = 3\nCEs\n{\nc\n{\nQueues\n{\nMaxTotalJobs = 7\nr\n{\n}\n}\n}\n}"),
    "types.toml": '[job_description]\nP = "number"\nZ = "number"\n',
    "groups.cfg": cfg("VO = v\nJobShare = 5", sections=("Registry", "Groups", "g")),
    "groups.toml": "[group.g]\njob_sharing = true\n",
}


def test_the_order_of_files_does_not_matter():
    seen = []
    for order in list(permutations(PARTS))[::37]:
        config = load_resources((file, PARTS[file]) for file in order)
        assert config.tree.sites["S"].grid == "G"
        assert dict(config.groups) == {"g": GroupConfig(name="g", vo="v", share=5.0, job_sharing=True)}
        seen.append((values(config), values(config, QueueId("S", "c", "r"), vo="v")))
    assert all(one == seen[0] for one in seen)
    q, r = seen[0]
    assert (q["p"], q["z"], q["r"], q["memory"], q["maxtotaljobs"]) == (1, 3, "ce", 4096, 7)
    assert (r["p"], r["maxtotaljobs"], "memory" in r) == (2, 7, False)


def test_options_for_all_ces_reach_those_of_other_files():
    shared = cfg("CEs\n{\nMaxRAM = 2000\na\n{\nQueues\n{\nq\n{\n}\n}\n}\n}")
    other = cfg("CEs\n{\nb\n{\nQueues\n{\nq\n{\nMaxRAM = 1\n}\nr\n{\n}\n}\n}\n}")
    config = load_resources([("a.cfg", shared), ("b.cfg", other)])
    assert [values(config, QueueId("S", *name))["maxram"] for name in ("aq", "bq", "br")] == [2000, 1, 2000]


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("[site.S]\nP = 1\n", "\n[site.S]\nP = 2\n", 3),
        ("[site.S.ce.c]\nP = 1\n", "[site.S.ce.c]\np = 2\n", 2),
        ("[site.S.ce.c.queue.q]\nP = 1\n", "[site.S.ce.c.queue.q]\nP = 1.5\n", 2),
        ("[site.S.vo.v]\nP = 1\n", "[site.S.vo.v]\nP = 2\n", 2),
        ("[site.S]\nTag = ['a']\n", "[site.S]\nTag = ['b']\n", 2),
        ("[ce_defaults]\nP = 1\n", "[ce_defaults]\nP = 2\n", 2),
        ("[ce_type.T]\nP = 1\n", "[ce_type.T]\nP = 2\n", 2),
        ("[group.g]\nshare = 1\n", "[group.g]\nshare = 2\n", 2),
        ("[job_description]\nP = 'list'\n", "[job_description]\nP = 'number'\n", 2),
    ],
)
def test_a_contradiction_names_both_places(first, second, line):
    (fault,) = faults_of(("a.toml", first), ("b.toml", second))
    assert fault[:2] == ("b.toml", line)
    assert "is given twice" in fault[2]
    assert "a.toml, line 2" in fault[2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[site.S]\nP = 1\n", "[site.S]\nP = 1\n"),
        ("[site.S]\nMemory = 4096\n", '[site.S]\nmemory = "4 GB"\n'),
        ("[site.S]\nPlatform = ['a', 'b']\n", '[site.S]\nPlatform = "a, b"\n'),
        ("[group.g]\nvo = 'v'\n", "[group.g]\nvo = 'v'\n"),
        ("[job_description]\nP = 'list merge'\n", "[job_description]\nP = 'list merge'\n"),
    ],
)
def test_the_same_twice_is_no_contradiction(first, second):
    assert load_resources([("a.toml", first), ("b.toml", second)]).notices is not None


def test_cfg_and_toml_contradict_each_other_in_their_own_words():
    toml = "[site.S]\nVO = ['v']\n[group.g]\nshare = 5\nbackground = true\n"
    group = cfg("JobShare = 6\nAllowBackgroundTQs = True", sections=("Registry", "Groups", "g"))
    found = faults_of(("a.toml", toml), ("b.cfg", group), ("c.cfg", cfg("Communities = w")))
    assert [fault[2].partition(" is")[0] for fault in found] == ["JobShare", "VO"]


def test_a_site_of_two_grids_in_two_files():
    other = cfg("P = 1", sections=("Resources", "Sites", "H", "S"))
    (fault,) = faults_of(("a.cfg", cfg("P = 1")), ("b.cfg", other))
    assert "stands under two grids, G and H" in fault[2]


def test_a_vo_that_one_file_names_makes_overlays_of_another():
    overlay = cfg("P = 1\nv\n{\nP = 2\n}\nCEs\n{\nc\n{\nQueues\n{\nq\n{\n}\n}\n}\n}")
    vos = cfg("", sections=("Registry", "VO", "v"))
    config = load_resources([("a.cfg", overlay), ("b.cfg", vos)])
    assert (values(config)["p"], values(config, vo="v")["p"]) == ("1", "2")


def test_all_faults_of_all_files_at_once_each_with_its_place():
    slips = cfg("MaxRAM 4000\nX = 1\nX = 2\n= 5\nCEs\n{\nc\n{\nMaxRAM = lots\nc2 }\n}")
    found = faults_of(
        ("a.cfg", slips),
        ("b.toml", "[site.S.ce.c.queue.q]\nMemory = = 5\n"),
        ("c.cfg", "Resources\n{\n}\n}\n"),
        ("d.toml", "[site.S]\nX = 3\nCPUTime = '1 parsec'\n[sites.T]\n"),
    )
    assert [fault[:2] for fault in found] == [
        ("a.cfg", 9), ("a.cfg", 11), ("a.cfg", 12), ("a.cfg", 17), ("a.cfg", 18), ("b.toml", 2),
        ("c.cfg", 4), ("d.toml", 2), ("d.toml", 3), ("d.toml", 4),
    ]  # fmt: skip
    with pytest.raises(InvalidConfig) as caught:
        load_resources([("a.cfg", slips), ("b.toml", "[site.S.ce.c.queue.q]\nMemory = = 5\n")])
    sections = [fault["section"] for fault in caught.value.data["faults"]]
    site = "/Resources/Sites/G/S"
    assert sections == [site, site, site, f"{site}/CEs/c", f"{site}/CEs/c", "site.S.ce.c.queue.q"]


def test_faults_of_the_caller_are_among_the_others():
    mine = Fault(message="mine", source=FilePosition(file="0.toml", line=1))
    with pytest.raises(InvalidConfig) as caught:
        load_resources([("a.toml", "x = [")], faults=[mine])
    assert [fault["source"] for fault in caught.value.data["faults"]] == ["0.toml", "a.toml"]
    with pytest.raises(InvalidConfig, match="mine"):
        load_resources([], faults=[mine])


def test_a_value_of_two_children_is_reported_once():
    text = cfg("CEs\n{\nMaxRAM = lots\na\n{\n}\nb\n{\n}\n}")
    (fault,) = faults_of(("a.cfg", text))
    assert fault[:2] == ("a.cfg", 11)


TWICE = """{section}
{{
  Agents
  {{
    CheckReserved = True
    CheckReserved = False
  }}
}}
"""
ONE_QUEUE = cfg("maxCPUTime = 1", sections=("Resources", "Sites", "G", "S", "CEs", "c", "Queues", "q"))


@pytest.mark.parametrize("section", ["Systems", "Website", "LocalInstallation"])
def test_an_option_given_twice_where_nothing_is_read_is_passed_over(section):
    """Templates of DIRAC itself have such options, and a whole dirac.cfg has what they have."""
    config = load_resources([("dirac.cfg", TWICE.format(section=section) + ONE_QUEUE)])
    assert values(config)


@pytest.mark.parametrize("section", ["Registry", "Operations", "DIRAC"])
def test_one_where_something_is_read_is_a_fault(section):
    with pytest.raises(InvalidConfig) as caught:
        load_resources([("dirac.cfg", TWICE.format(section=section) + ONE_QUEUE)])
    (fault,) = caught.value.data["faults"]
    assert (fault["line"], fault["section"]) == (6, f"/{section}/Agents")
