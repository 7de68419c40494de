"""Whole DIRAC configurations: the layout of today, with its defaults of CEs, and that of RFC #5."""

from pathlib import Path

import pytest
from tests.unit.resources.conftest import eligible, load_cfg

from lodesman.decide.resources import (
    QueueId,
    effective_params,
    fold,
    load_resources,
    queue_settings,
)
from lodesman.wire.vocabulary import Level

DATA = Path(__file__).parents[2] / "data" / "resources"
HARBOUR = "LCG.Harbour.is"
LONG = QueueId(HARBOUR, "arc1.harbour.example", "nordugrid-SLURM-grid")
SHORT = QueueId(HARBOUR, "arc1.harbour.example", "nordugrid-SLURM-short")
CONDOR = QueueId(HARBOUR, "htc1.harbour.example", "htc1.harbour.example-condor")
NO_JOB = "no job could ever run there; name it in Tag, too"
VAC = QueueId("VAC.Moor.uk", "vac1.moor.example", "default")


def read(name):
    return (DATA / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def today():
    return load_cfg(read("dirac-today.cfg"), source="dirac.cfg")


@pytest.fixture(scope="module")
def rfc5():
    return load_cfg(read("rfc5.cfg"), source="rfc5.cfg")


def found(config, queue, name, vo=""):
    one = effective_params(config.tree, queue, vo=vo, types=config.types).get(fold(name))
    return None if one is None else (one.value, one.level)


def settings(config, queue, vo=""):
    return queue_settings(effective_params(config.tree, queue, vo=vo, types=config.types), config.types)


# --- today's layout --------------------------------------------------------------------------------


def test_every_queue_is_found(today):
    assert list(today.tree.queue_ids()) == [LONG, SHORT, CONDOR, VAC]
    assert today.tree.sites[HARBOUR].grid == "LCG"


@pytest.mark.parametrize(
    ("queue", "name", "value", "level"),
    [
        (LONG, "MaxTotalJobs", 500, Level.QUEUE),
        (SHORT, "MaxTotalJobs", 100, Level.DEFAULT),
        (LONG, "MaxWaitingJobs", 60, Level.CE_TYPE),
        (CONDOR, "MaxWaitingJobs", 200, Level.QUEUE),
        (VAC, "MaxWaitingJobs", 20, Level.DEFAULT),
        (LONG, "SI00", 3000, Level.QUEUE),
        (SHORT, "SI00", 2400, Level.CE),
        (VAC, "SI00", 2500, Level.DEFAULT),
        (CONDOR, "UseLocalSchedd", "False", Level.CE),
        (CONDOR, "DaysToKeepLogs", "15", Level.CE_TYPE),
        (LONG, "MoUTierLevel", "1", Level.SITE),
        (LONG, "NumberOfNodes", "2-4", Level.QUEUE),
        (LONG, "XRSLExtraString", "(runtimeenvironment=ENV/PROXY)", Level.CE_TYPE),
    ],
)
def test_the_origin_of_each_value(today, queue, name, value, level):
    assert found(today, queue, name) == (value, level)


def test_a_type_is_for_its_own_ces(today):
    assert found(today, VAC, "DaysToKeepLogs") is None
    assert found(today, LONG, "DaysToKeepLogs") is None
    assert found(today, LONG, "TotalCPUs") is None


def test_tags_of_all_levels_unite_as_dirac_does_it(today):
    assert found(today, LONG, "Tag")[0] == ("Default", "Rest", "Token", "MultiProcessor")
    assert found(today, VAC, "Tag")[0] == ("Default",)
    assert found(today, CONDOR, "RequiredTag")[0] == ("GPU", "96RAM")


def test_what_the_program_makes_of_it(today):
    long = settings(today, LONG)
    assert long.norm_cpu_seconds == 2880 * 60 * 3000 // 250
    assert (long.processors, long.memory_mb, long.max_total_jobs) == (8, 64000, 500)
    short = settings(today, SHORT)
    # maxCPUTime = 0 and NumberOfProcessors = 0: none that is known.
    assert (short.cpu_seconds, short.processors, short.memory_mb) == (None, None, 2000)
    assert settings(today, CONDOR).memory_mb is None
    # MaxCPUTime is DIRAC's other spelling; the factor is that of the default.
    assert settings(today, VAC).norm_cpu_seconds == 1000 * 60 * 10


def test_vos_of_groups_queues_and_overlays(today):
    assert {name: group.vo for name, group in today.groups.items()} == {
        "astro_user": "astro",
        "astro_pilot": "astro",
        "survey_prod": "survey",
    }
    assert set(today.vos) == {"astro", "survey"}
    assert found(today, LONG, "MaxTotalJobs", "survey") == (50, Level.QUEUE_VO)
    assert found(today, LONG, "MaxTotalJobs", "astro") == (500, Level.QUEUE)
    assert list(eligible(today, vo="astro")[HARBOUR]) == ["arc1.harbour.example"]


def test_defaults_fulfil_requirements_as_what_a_ce_says_itself(today):
    nodes = eligible(today, {"Tag": "Rest", "MaxRAM": 2000}, "survey")
    assert nodes == {HARBOUR: {LONG.ce: [LONG.queue, SHORT.queue]}}


def test_only_what_is_odd_is_noticed(today):
    assert [str(notice).partition(": ")[2] for notice in today.notices] == [
        "OSCompatibility is not read: list under Platform of a queue all that it can run",
        "section htc9.harbour.example is passed over: no VO is called so",
        "site LCG.Empty.org has no CE",
        f"RequiredTag: queue {'/'.join(CONDOR)} requires GPU, 96RAM and does not offer it: {NO_JOB}",
    ]


# --- the layout of RFC #5 --------------------------------------------------------------------------


def test_sites_stand_without_a_grid_and_ces_under_computing(rfc5):
    assert list(rfc5.tree.queue_ids()) == [QueueId("HARBOUR", "arc1", name) for name in ("long", "short")]
    assert list(rfc5.tree.sites) == ["HARBOUR", "DEPOT"]
    assert rfc5.tree.sites["HARBOUR"].grid == ""


def test_values_are_inherited_though_the_prototype_of_dirac_did_not(rfc5):
    long, short = rfc5.tree.queue_ids()
    assert found(rfc5, long, "Country") == ("is", Level.SITE)
    assert found(rfc5, long, "Host") == ("arc1.harbour.example", Level.CE)
    assert found(rfc5, long, "SI00") == (1500, Level.CE)
    assert found(rfc5, short, "SI00") == (2000, Level.QUEUE)
    assert found(rfc5, long, "MaxTotalJobs", "survey") == (5, Level.QUEUE_VO)


def test_the_first_list_of_communities_that_is_not_empty_decides(rfc5):
    long, short = rfc5.tree.queue_ids()
    assert found(rfc5, long, "VO") == (("survey",), Level.QUEUE)
    assert found(rfc5, short, "VO") == (("astro", "survey"), Level.SITE)
    assert eligible(rfc5, vo="astro") == {"HARBOUR": {"arc1": ["short"]}}
    assert eligible(rfc5, vo="survey") == {"HARBOUR": {"arc1": ["long", "short"]}}
    assert eligible(rfc5, vo="other") == {}


def test_what_has_nothing_to_do_with_jobs_is_passed_over_in_silence(rfc5):
    assert [notice.message for notice in rfc5.notices] == ["site DEPOT has no CE"]


def test_the_origin_is_the_place_where_the_option_stands(rfc5):
    long = next(rfc5.tree.queue_ids())
    source = effective_params(rfc5.tree, long, types=rfc5.types)["si00"].source
    assert source.section == "/Resources_new/Sites/HARBOUR/Computing"
    assert read("rfc5.cfg").splitlines()[source.line - 1].strip() == "SI00 = 1500"


def test_both_layouts_side_by_side():
    config = load_resources([("a.cfg", read("dirac-today.cfg")), ("b.cfg", read("rfc5.cfg"))])
    assert len(list(config.tree.queue_ids())) == 6
    # What is said of the type holds for the CEs of both.
    assert found(config, QueueId("HARBOUR", "arc1", "long"), "MaxWaitingJobs") == (60, Level.CE_TYPE)


def test_the_layout_of_rfc5_under_resources_itself():
    text = read("rfc5.cfg").replace("Resources_new", "Resources")
    assert list(load_cfg(text).tree.sites) == ["HARBOUR", "DEPOT"]
