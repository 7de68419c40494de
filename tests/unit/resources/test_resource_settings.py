"""What the program itself reads of a queue."""

import pytest
from tests.unit.resources.conftest import load_toml

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import QueueId, QueueSettings, effective_params, queue_settings
from lodesman.decide.resources.kinds import WELL_KNOWN, parse_type, typed_value
from lodesman.decide.resources.model import ANY, BadValue, fold
from lodesman.decide.resources.settings import check_value
from lodesman.wire.vocabulary import Kind


def settings(lines, head=""):
    config = load_toml(f"{head}\n[site.S.ce.c.queue.q]\n{lines}")
    return queue_settings(
        effective_params(config.tree, QueueId("S", "c", "q"), types=config.types), config.types
    )


def test_nothing_configured_is_not_zero():
    assert settings("") == QueueSettings()
    assert settings("").cpu_seconds is None
    assert settings("").norm_cpu_seconds is None
    assert settings("").max_waiting_jobs is None


def test_everything_configured():
    found = settings(
        """
        Backend = "local"
        CPUTime = "1 h"
        CPUScalingFactor = 1.5
        WallTime = "2 d"
        MaxWaitingJobs = 2
        MaxTotalJobs = 0
        Slots = 3
        WaitingToRunningRatio = 0.5
        NumberOfProcessors = 8
        Memory = "16 GB"
        Platform = "x86_64-el9"
        Tag = ["a", "b"]
        RequiredTag = "a"
        VO = "v, w"
        """
    )
    assert found == QueueSettings(
        backend="local",
        cpu_seconds=3600,
        cpu_scaling_factor=1.5,
        wall_seconds=172_800,
        max_waiting_jobs=2,
        max_total_jobs=0,
        slots=3,
        waiting_to_running_ratio=0.5,
        processors=8,
        memory_mb=16384,
        platforms=("x86_64-el9",),
        tags=("a", "b"),
        required_tags=("a",),
        vos=("v", "w"),
    )
    assert found.norm_cpu_seconds == 5400


@pytest.mark.parametrize(
    ("lines", "wall", "habit", "life"),
    [
        ("", None, 0, 0),
        ("", None, 600, 600),
        ("WallTime = 0", None, 600, 600),  # none that is known
        ("WallTime = 'ANY'", None, 600, 600),
        ("WallTime = '1 h'", 3_600, 0, 3_600),
        ("WallTime = '1 h'", 3_600, 600, 600),
        ("walltime = 90", 90, 600, 90),
        ("WallTime = 0.5", 1, 0, 1),
    ],
)
def test_a_pilot_lives_no_longer_than_its_queue_lets_it(lines, wall, habit, life):
    found = settings(lines)
    assert found.wall_seconds == wall
    assert found.life_seconds(habit) == life


def test_a_wall_time_below_nothing_is_refused():
    with pytest.raises(BadValue):
        check_value(fold("WallTime"), -1)
    with pytest.raises(BadValue):
        parse_type("WallTime", "string")


def test_diracs_minutes_and_specint():
    found = settings("maxCPUTime = 60\nSI00 = 2500")
    assert (found.cpu_seconds, found.cpu_scaling_factor, found.norm_cpu_seconds) == (3600, 10, 36000)


def test_seconds_go_before_minutes_and_a_factor_before_specint():
    found = settings("maxCPUTime = 60\nCPUTime = 100\nSI00 = 2500")
    assert (found.cpu_seconds, found.cpu_scaling_factor) == (100, 1)
    found = settings("maxCPUTime = 60\nSI00 = 2500\nCPUScalingFactor = 2")
    assert found.norm_cpu_seconds == 7200
    assert settings("maxCPUTime = 60\nSI00 = 0").cpu_scaling_factor == 1


def test_what_a_job_may_use_goes_before_what_the_node_has():
    assert settings("Memory = 64000").memory_mb == 64000
    assert settings("Memory = 64000\nMaxRAM = 8000").memory_mb == 8000


def test_zero_memory_time_and_processors_are_none_that_is_known():
    found = settings("MaxRAM = 0\nmaxCPUTime = 0\nMaxTotalJobs = 0\nNumberOfProcessors = 0")
    assert (found.memory_mb, found.cpu_seconds, found.max_total_jobs) == (None, None, 0)
    assert found.processors is None
    assert settings("MaxRAM = 0\nMemory = 4000").memory_mb == 4000
    assert settings("CPUTime = 0\nmaxCPUTime = 1\nSI00 = 500").norm_cpu_seconds == 120


def test_any_is_not_configured():
    found = settings('Memory = "ANY"\nCPUTime = "ANY"\nPlatform = "ANY"\nSlots = "ANY"')
    assert found.slots is None
    assert (found.memory_mb, found.cpu_seconds) == (None, None)
    assert found.platforms == (ANY,)


def test_the_type_of_a_ce_stands_in_for_the_backend():
    assert settings('CEType = "HTCondorCE"').backend == "htcondor@c"
    assert settings('CEType = "HTCondorCE"\nBackend = "local"').backend == "local"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", ""),
        ('Backend = " SLURM "', "slurm"),
        ('Backend = "Slurm@login.example.org"', "slurm@login.example.org"),
        ('Backend = "the cluster"', "the cluster"),
        ('CEType = "Slurm"', "slurm"),
        ('CEType = "SGE"', "gridengine"),
        ('CEType = "AREX"', "arc@c"),
        ('CEType = "SSH"\nSSHHost = "ann@login"\nBatchSystem = "GE"', "gridengine@ann@login"),
        ('CEType = "SSH"\nBatchSystem = "SLURM"', "slurm@c"),
        ('CEType = "CREAM"', "cream"),
    ],
)
def test_all_spellings_of_a_batch_system_are_one_name(text, name):
    assert settings(text).backend == name


def test_options_for_the_submit_command_are_words():
    assert settings("SubmitOptions = \"--qos=high --comment 'a b'\"").submit_options == (
        "--qos=high", "--comment", "a b",
    )  # fmt: skip


@pytest.mark.parametrize("value", ['"\'"', '["a", "b"]'])
def test_options_that_are_no_words_are_refused(value):
    with pytest.raises(InvalidConfig, match="SubmitOptions"):
        settings(f"SubmitOptions = {value}")


@pytest.mark.parametrize(
    ("text", "generic"),
    [("", True), ("true", True), ("'yes'", True), ("false", False), ("'no'", False), ("0", False), ("'ANY'", True)],
)  # fmt: skip
def test_a_queue_takes_generic_pilots_unless_it_says_no(text, generic):
    assert settings(f"GenericPilots = {text}" if text else "").generic_pilots is generic


@pytest.mark.parametrize(
    ("text", "push", "forwards"),
    [
        ("", False, False),
        ("Mode = 'push'", True, False),
        ("Mode = 'PUSH'", True, False),
        ("Mode = 'pull'\nForwards = true", False, True),
        ("Mode = 'push'\nForwards = 'yes'", True, True),
        ("Forwards = false", False, False),
    ],
)
def test_a_queue_is_pulled_from_and_forwards_nothing_unless_it_says_so(text, push, forwards):
    assert (settings(text).push, settings(text).forwards) == (push, forwards)


def test_declared_units_are_converted():
    found = settings(
        "Memory = 4\nCPUTime = 2", '[job_description]\nMemory = "number GB"\nCPUTime = "number h"'
    )
    assert (found.memory_mb, found.cpu_seconds) == (4096, 7200)
    found = settings("Memory = 4\nCPUTime = 2", '[job_description]\nMemory = "number"')
    assert (found.memory_mb, found.cpu_seconds) == (4, 2)


def test_a_declaration_may_not_change_what_the_program_works_with():
    for known in WELL_KNOWN:
        assert parse_type(known.name, known.kind.value).unit == known.unit
        with pytest.raises(BadValue, match=f"needs a {known.kind.value}"):
            parse_type(known.name, "version")
    with pytest.raises(BadValue, match="does not fit"):
        parse_type("Memory", "number s")
    with pytest.raises(BadValue, match="does not fit"):
        parse_type("MaxTotalJobs", "number MB")
    assert parse_type("Anything", "boolean").kind is Kind.BOOLEAN
    assert parse_type("Other", "number GB").unit == "GB"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CPUTime", -1),
        ("CPUScalingFactor", 0),
        ("CPUScalingFactor", -0.5),
        ("MaxWaitingJobs", 1.5),
        ("MaxTotalJobs", -1),
        ("Slots", 0.5),
        ("NumberOfProcessors", -1),
        ("Memory", (1, 2)),
        ("CEType", ("a", "b")),
        ("GenericPilots", (True, False)),
        ("Mode", "shove"),
        ("Mode", ("push", "pull")),
        ("WaitingToRunningRatio", -0.1),
    ],
)
def test_values_nothing_can_be_done_with(name, value):
    with pytest.raises(BadValue):
        check_value(fold(name), value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CPUTime", 0),
        ("CPUScalingFactor", 0.001),
        ("MaxTotalJobs", 0),
        ("NumberOfProcessors", 1),
        ("Memory", ANY),
        ("Tag", ("a", "b")),
        ("Anything", -5),
        ("Anything", (1, "a")),
    ],
)
def test_values_that_pass(name, value):
    check_value(fold(name), value)


@pytest.mark.parametrize(
    ("raw", "declaration", "commas", "value"),
    [
        ("a, b", None, True, ("a", "b")),
        ("a, b", None, False, "a, b"),
        ("a,", None, True, "a"),
        ("a, b", "string", True, ("a", "b")),
        ('"a, b"', "string", True, "a, b"),
        ('"a, b"', None, True, "a, b"),
        ("a, b", "string", False, "a, b"),
        ("a, b, a", "list", False, ("a", "b")),
        ("a", "list", True, ("a",)),
        ("", "list", True, ()),
        (["a, b", "c"], "list", False, ("a", "b", "c")),
        (5, "list", False, ("5",)),
        ("1, 2 GB", "number MB", True, (1, 2048)),
        ("4 GB", "number MB", True, 4096),
        (["1 GB", 2], "number MB", False, (1024, 2)),
        ("6.30.0", "version", True, "6.30"),
        ("Yes", "boolean", True, True),
        (" ANY ", "number", True, "ANY"),
        (["ANY"], "version", False, ("ANY",)),
        ("any", None, True, "ANY"),
        ("Any", "number", False, "ANY"),
        (True, None, False, True),
        ([1, True, 1.0, "1"], None, False, (1, True, "1")),
        (1.5, None, False, 1.5),
        ("  x ", None, True, "x"),
    ],
)
def test_raw_values_become_typed_ones(raw, declaration, commas, value):
    declared = parse_type("P", declaration) if declaration else None
    found = typed_value(raw, declared, commas=commas)
    assert found == value
    assert type(found) is type(value)
    assert typed_value(found, declared, commas=False) == value


@pytest.mark.parametrize(
    ("raw", "declaration"),
    [
        ("lots", "number"),
        ("perhaps", "boolean"),
        ("a|b", "version"),
        (None, None),
        ({}, "list"),
    ],
)
def test_raw_values_that_are_refused(raw, declaration):
    with pytest.raises(BadValue):
        typed_value(raw, parse_type("P", declaration) if declaration else None)
