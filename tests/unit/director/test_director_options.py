"""The options: seed spelling and defaults, checks, layers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig
from lodesman.decide.director.options import _RULES, CPU_BUCKETS, DirectorOptions, PoolOptions, read_options
from lodesman.decide.director.plan import MAX_MEAN


def faults_of(section) -> list[dict[str, str]]:
    with pytest.raises(InvalidConfig) as caught:
        read_options(section)
    return caught.value.data["faults"]


# --- defaults -----------------------------------------------------------------------------------------


def test_an_empty_section_gives_the_defaults():
    assert read_options({}) == DirectorOptions(
        pools={"Local": PoolOptions(name="Local")}, pool_defaults=PoolOptions()
    )


def test_the_defaults_are_those_of_the_seed():
    options = DirectorOptions()
    assert options.pilots_per_iteration == 40
    assert options.lowest_cpu_boost == 7200
    assert (options.extra_pilot_fraction, options.extra_pilots) == (0.2, 4)
    assert options.max_pilot_waiting_hours == 6
    assert options.max_cpu == 1_080_000
    assert options.max_pilots_per_iteration == 0
    assert options.target.policy == "seed"
    pool = options.pool_defaults
    assert (pool.min_threads, pool.max_threads, pool.total_threads) == (0, 2, 40)
    assert pool.list_match_delay_minutes == 5
    assert pool.enable_list_match
    assert pool.private_fraction == 0  # ADR 0039
    assert not pool.legacy_fraction


def test_the_cpu_buckets_rise_from_six_minutes_to_twelve_and_a_half_days():
    assert CPU_BUCKETS[0] == 360
    assert CPU_BUCKETS[-1] == 1_080_000
    assert list(CPU_BUCKETS) == sorted(set(CPU_BUCKETS))


# --- reading ------------------------------------------------------------------------------------------

SEED_SECTION = {
    "pilotsPerIteration": "100",
    "lowestCPUBoost": "3600",
    "extraPilotFraction": "0.5",
    "extraPilots": "10",
    "maxPilotWaitingHours": "2",
    "SubmitPools": "DIRAC, Local, gLite, SAM",
    "DefaultSubmitPools": "gLite,SAM",
    "GenericPilotDN": "/C=ES/CN=pilot",
    "GenericPilotGroup": "lhcb_pilot",
    "PrivatePilotFraction": "1",
    "minThreadsInPool": "1",
    "maxThreadsInPool": "4",
    "totalThreadsInPool": "80",
    "ListMatchDelay": "10",
    "EnableListMatch": "no",
}


def test_a_section_in_the_spelling_of_the_seed_is_read():
    options = read_options(SEED_SECTION)
    assert options.pilots_per_iteration == 100
    assert options.lowest_cpu_boost == 3600
    assert options.extra_pilots == 10
    assert options.submission_pools == ("DIRAC", "Local", "gLite", "SAM")
    assert options.default_submission_pools == ("gLite", "SAM")
    pool = options.pools["gLite"]
    assert (pool.generic_owner, pool.generic_group) == ("/C=ES/CN=pilot", "lhcb_pilot")
    assert pool.private_fraction == 1.0
    assert (pool.min_threads, pool.max_threads, pool.total_threads) == (1, 4, 80)
    assert pool.list_match_delay_minutes == 10
    assert not pool.enable_list_match


def test_typed_values_read_like_text():
    typed = {"pilotsPerIteration": 100, "SubmitPools": ["a", "b"], "EnableListMatch": False, "extraPilots": 3}
    as_text = {
        "pilotsPerIteration": "100",
        "SubmitPools": "a,b",
        "EnableListMatch": "false",
        "extraPilots": "3",
    }
    assert read_options(typed) == read_options(as_text)


def _value(options, rule):
    groups = {"": options, "pool": options.pool_defaults}
    return getattr(groups.get(rule.group) or getattr(options, rule.group), rule.field)


def test_every_option_reaches_its_own_field():
    """Each rule, given alone with a value that is not its default, changes exactly itself."""
    samples = {
        "maxCPU": "2000000",
        "taskQueueCPUTimeIntervals": "500, 5000, 1080000",
        "SubmitPools": "Local, Second",
        "GenericPilotDN": "somebody",
        "Queues": "A/ce/q, B/ce",
        "requiredTimeLeft": "500000",
        "GenericPilotGroup": "some_group",
        "PrivatePilotFraction": "0.25",
        "EnableListMatch": "no",
        "LegacyPrivatePilotFraction": "yes",
        "TargetPolicy": "Gap",
        "cancelExcess": "no",
        "DefaultSubmitPools": "Second",
        "minThreadsInPool": "1",
        "breakerOpenSeconds": "400",
        "breakerMaxOpenSeconds": "4000",
        "lowestCPUBoost": "1000",
    }
    given = {"SubmitPools": "Local, Second", "DefaultSubmitPools": "Local", "PrivatePilotFraction": "0.5"}
    base = read_options(given)
    for rule in _RULES:
        options = read_options(given | {rule.option: samples.get(rule.option, "50")})
        changed = [one.option for one in _RULES if _value(options, one) != _value(base, one)]
        assert changed == ([] if rule.option == "SubmitPools" else [rule.option])


def test_own_buckets_give_their_own_max_cpu():
    options = read_options({"taskQueueCPUTimeIntervals": "500, 5000, 50000, 300000"})
    assert options.cpu_buckets == (500, 5000, 50_000, 300_000)
    assert options.max_cpu == 300_000


def test_pools_alone_are_their_own_defaults():
    assert read_options({"SubmitPools": "A,B"}).default_submission_pools == ("A", "B")


# --- layers -------------------------------------------------------------------------------------------


def test_a_pool_section_wins_over_the_director_section():
    options = read_options(
        {
            "SubmitPools": "A, B",
            "maxThreadsInPool": "3",
            "PrivatePilotFraction": "0.1",
            "A": {"maxThreadsInPool": "9", "GenericPilotDN": "alice"},
        }
    )
    assert options.pools["A"].max_threads == 9
    assert options.pools["A"].private_fraction == 0.1
    assert options.pools["A"].generic_owner == "alice"
    assert options.pools["B"].max_threads == 3
    assert options.pools["B"].generic_owner == "generic"
    assert {name: pool.name for name, pool in options.pools.items()} == {"A": "A", "B": "B"}


def test_a_pool_section_may_hold_pool_options_only():
    (fault,) = faults_of({"SubmitPools": "A", "A": {"pilotsPerIteration": "5"}})
    assert fault["section"] == "A"
    assert fault["option"] == "pilotsPerIteration"
    assert "director's section" in fault["message"]


def test_a_section_of_no_pool_is_a_fault():
    (fault,) = faults_of({"SubmitPools": "A", "Bee": {"maxThreadsInPool": "1"}})
    assert fault["section"] == "Bee"
    assert "no pool of SubmitPools (A)" in fault["message"]


# --- faults -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "raw", "wanted"),
    [
        ("pilotsPerIteration", "many", "a number from 0"),
        ("pilotsPerIteration", "-1", "a number from 0"),
        ("pilotsPerIteration", "nan", "a number from 0"),
        ("pilotsPerIteration", "inf", "a number from 0"),
        ("pilotsPerIteration", True, "a number from 0"),
        ("pilotsPerIteration", None, "a number from 0"),
        ("pilotsPerIteration", "1e999", "a number from 0"),
        ("extraPilots", "4.5", "a whole number"),
        ("extraPilots", [4], "a whole number"),
        ("lowestCPUBoost", "0", "a whole number from 360"),
        ("maxPilotWaitingHours", "0", "a number from 0.001"),
        ("PrivatePilotFraction", "1.5", "a number from 0 to 1"),
        ("EnableListMatch", "perhaps", "yes or no"),
        ("SubmitPools", "", "a list of different names"),
        ("SubmitPools", "A,,B", "a list of different names"),
        ("SubmitPools", "A,A", "a list of different names"),
        ("SubmitPools", [1, 2], "a list of different names"),
        ("SubmitPools", 7, "a list of different names"),
        ("GenericPilotDN", "  ", "some text"),
        ("GenericPilotGroup", 5, "some text"),
        ("taskQueueCPUTimeIntervals", "10, 10", "strictly increasing"),
        ("taskQueueCPUTimeIntervals", "10, x", "strictly increasing"),
        ("taskQueueCPUTimeIntervals", [], "strictly increasing"),
        ("totalThreadsInPool", "0", "a whole number from 1"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_be_right(option, raw, wanted):
    (fault,) = faults_of({option: raw})
    assert fault["option"] == option
    assert wanted in fault["message"]


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"LegacyPrivatePilotFraction": "yes"}, ["Director"]),
        ({"Local": {"LegacyPrivatePilotFraction": "yes"}}, ["Local"]),
        (
            {
                "LegacyPrivatePilotFraction": "yes",
                "PrivatePilotFraction": 0.5,
                "Local": {"PrivatePilotFraction": 0},
            },
            ["Local"],
        ),
    ],
)
def test_the_legacy_switch_never_makes_all_pilots_private_unasked(section, where):
    """The complement of 0, the default, is all."""
    assert [fault["section"] for fault in faults_of(section)] == where
    assert read_options(section | {"PrivatePilotFraction": 0.5, "Local": {}}).pools["Local"].private_fraction


def test_all_faults_are_reported_at_once():
    found = faults_of({"extraPilots": "x", "pilotsPerIteraton": "5", "Local": {"ListMatchDelay": "-1"}})
    assert [(fault["section"], fault["option"]) for fault in found] == [
        ("Director", "extraPilots"),
        ("Director", "pilotsPerIteraton"),
        ("Local", "ListMatchDelay"),
    ]


def test_a_misspelt_option_is_shown_its_right_name():
    (fault,) = faults_of({"pilotsperiteration": "5"})
    assert fault["message"] == "is not known; did you mean pilotsPerIteration?"
    (fault,) = faults_of({"zzz": "5"})
    assert fault["message"] == "is not known"


def test_a_huge_value_is_not_repeated_whole():
    (fault,) = faults_of({"extraPilots": "9" * 10_000})
    assert len(fault["message"]) < 200


@pytest.mark.parametrize(
    ("section", "option"),
    [
        ({"minThreadsInPool": "5", "maxThreadsInPool": "2"}, "minThreadsInPool"),
        ({"SubmitPools": "A", "DefaultSubmitPools": "B"}, "DefaultSubmitPools"),
        ({"maxCPU": "1000"}, "maxCPU"),
        ({"breakerOpenSeconds": "500", "breakerMaxOpenSeconds": "100"}, "breakerMaxOpenSeconds"),
    ],
)
def test_options_that_contradict_each_other_are_refused(section, option):
    (fault,) = faults_of(section)
    assert fault["option"] == option


def test_threads_of_one_pool_are_checked_with_what_it_inherits():
    (fault,) = faults_of({"maxThreadsInPool": "2", "Local": {"minThreadsInPool": "3"}})
    assert fault["section"] == "Local"


def test_the_message_is_one_sentence_that_names_the_faults():
    with pytest.raises(InvalidConfig) as caught:
        read_options({"extraPilots": "x"})
    assert caught.value.message == (
        "The director's options have 1 fault(s): "
        "Director extraPilots must be a whole number from 0 to 100000, not 'x'."
    )


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.text(max_size=3))
)
NAMES = st.sampled_from([rule.option for rule in _RULES] + ["other", "Local"])


@given(st.dictionaries(NAMES, st.one_of(VALUES, st.dictionaries(NAMES, VALUES, max_size=3)), max_size=8))
def test_any_section_gives_options_or_a_list_of_faults(section):
    faults: list[object] = []
    options = None
    try:
        options = read_options(section)
    except InvalidConfig as refused:
        faults = refused.data["faults"]
    assert (options is None) == bool(faults)
    assert options is None or set(options.pools) == set(options.submission_pools)


def test_the_largest_allowed_options_keep_the_mean_drawable():
    biggest = {
        "pilotsPerIteration": "10000",
        "adaptiveMaxFactor": "100",
        "maxCPU": "100000000",
        "lowestCPUBoost": "360",
    }
    options = read_options(biggest)
    largest = 2 * options.pilots_per_iteration * options.target.max_factor
    assert largest * options.max_cpu / options.lowest_cpu_boost < MAX_MEAN
