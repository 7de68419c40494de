"""The order of versions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import load_resources
from lodesman.decide.resources.kinds import canonical_version, version_key
from lodesman.decide.resources.model import BadValue

ASCENDING = [
    ("1.2", "1.10"),
    ("1.9.9", "2"),
    ("1.0rc1", "1.0"),
    ("1.0-alpha", "1.0-beta"),
    ("1.0-beta", "1.0-rc1"),
    ("1.0rc2", "1.0rc10"),
    ("1.0dev", "1"),
    ("1.0", "1.0.1"),
    ("1.0", "1.0.post1"),
    ("v7r2", "v7r2p1"),
    ("v7r2p1", "v7r2p13"),
    ("v7r2p13", "v7r3"),
    ("v7r0-pre5", "v7r0"),
    ("el8", "el9"),
    ("0", "0.0.1"),
    ("2.3.9-1", "2.3.10-1"),
    ("6.28/04", "6.28/06"),
    ("6.28/12", "6.30/02"),
]

EQUAL = [
    ("1", "1.0"),
    ("1.0", "1.0.0.0"),
    ("v1.2", "V1.2"),
    ("1-2", "1.2"),
    ("1_2", "1+2"),
    ("6.32/04", "6.32.4"),
    ("01.02", "1.2"),
    ("1.0rc1", "1rc1"),
    ("1.0rc1", "1.0.rc.1"),
    (" 6.30 ", "6.30"),
    ("0", "0.0"),
]


@pytest.mark.parametrize(("older", "newer"), ASCENDING)
def test_older_is_before_newer(older, newer):
    assert version_key(older) < version_key(newer)


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_versions_have_one_key_and_one_spelling(one, other):
    assert version_key(one) == version_key(other)
    assert canonical_version(one) == canonical_version(other)


@pytest.mark.parametrize("text", ["", "  ", "...", "1,2", "a\nb", "1" * 129, "ünï", "/", "1|2", "$x"])
def test_what_is_no_version(text):
    with pytest.raises(BadValue, match="is not a version"):
        version_key(text)


def test_the_canonical_spelling_is_readable():
    assert canonical_version("v7r2p013") == "v7r2p13"
    assert canonical_version("6.30.00") == "6.30"
    assert canonical_version("1.2-beta.3") == "1.2beta3"
    assert canonical_version("0.0") == "0"


versions = st.from_regex(r"[A-Za-z0-9_.+~: \-]{1,20}", fullmatch=True)


@given(versions)
def test_canonical_versions_are_equal_to_their_text_and_not_longer(text):
    try:
        key = version_key(text)
    except BadValue:
        return
    canonical = canonical_version(text)
    assert version_key(canonical) == key
    assert canonical_version(canonical) == canonical
    assert len(canonical) <= len(text)


@given(versions, versions)
def test_one_spelling_exactly_for_equal_keys(one, other):
    try:
        keys = version_key(one), version_key(other)
    except BadValue:
        return
    assert (keys[0] == keys[1]) == (canonical_version(one) == canonical_version(other))


def test_the_pairs_make_a_total_order():
    texts = sorted({text for pair in ASCENDING + EQUAL for text in pair}, key=version_key)
    for one, other in itertools.combinations(texts, 2):
        assert version_key(one) <= version_key(other)


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5), st.lists(st.integers(0, 30), min_size=1, max_size=5)
)
def test_numbers_compare_as_numbers(one, other):
    def without_end_zeros(numbers):
        while numbers and numbers[-1] == 0:
            numbers = numbers[:-1]
        return numbers

    left, right = ".".join(map(str, one)), ".".join(map(str, other))
    expected = without_end_zeros(one) < without_end_zeros(other)
    assert (version_key(left) < version_key(right)) == expected


def test_a_version_that_is_a_number_of_toml_is_a_fault_of_the_configuration():
    text = '[job_description]\nPython = "version"\n[site.A]\nVO = ["lab"]\nPython = 3.10\n'
    with pytest.raises(InvalidConfig, match="put it in quotes"):
        load_resources([("sites.toml", text)])
    assert load_resources([("sites.toml", text.replace("3.10", '"3.10"'))])
    assert load_resources([("sites.toml", text.replace("3.10", "3"))])
