"""Readers of single values: what each accepts and how each refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.languages.jobs import values
from lodesman.languages.jobs.attributes import megabytes, seconds
from lodesman.languages.jobs.values import Mistake, environment

MEMORY = values.whole(0, 1_000)
POSITIVE = values.whole(1, 10)
SITES = values.names("ANY")
TAGS = values.names()
OUTPUT = values.files(absolute=False)
INPUT = values.files(absolute=True)


def refused(reader, value):
    with pytest.raises(Mistake) as caught:
        reader(value)
    message = str(caught.value)
    assert len(message) < 300
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("value", "number"),
    [(5, 5), (0, 0), (1_000, 1_000), ("5", 5), (" 5 ", 5), ("+5", 5), (5.0, 5), ("5.0", 5), ("1e2", 100), (1e2, 100),
     ("0005", 5), (".1e1", 1), (-0.0, 0)],
)  # fmt: skip
def test_whole_numbers_in_every_dress(value, number):
    found = MEMORY(value)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "is negative"),
        ("-5", "is negative"),
        (-1e300, "is negative"),
        (1_001, "is too large"),
        (1e300, "is too large"),
        ("9" * 18, "is too large"),
        ("9" * 19, "is too large"),
        pytest.param(10**5_000, "is too large", id="10**5000"),
        ("9" * 100, "is the text"),
        (1.5, "is 1.5, not a whole number"),
        ("1.5", "is 1.5, not a whole number"),
        (float("nan"), "is nan, not a whole number"),
        (float("inf"), "is inf, not a whole number"),
        ("1e999", "is inf, not a whole number"),
        (True, "is a truth value, not a number"),
        ("abc", "is the text 'abc', not a number"),
        ("", "is the text '', not a number"),
        ("0x10", "is the text '0x10', not a number"),
        ("1_0", "not a number"),
        ("٣", "not a number"),
        ("5\n6", "not a number"),
        ([5], "is a list, not a number"),
        ({"a": 1}, "is a record, not a number"),
        (None, "is null, not a number"),
    ],
)
def test_what_is_no_whole_number(value, words):
    assert words in refused(MEMORY, value)


def test_zero_can_be_too_small():
    assert refused(POSITIVE, 0) == "is too small"
    assert POSITIVE(1) == 1


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        (True, True),
        (False, False),
        ("true", True),
        ("No", False),
        (" YES ", True),
        (1, True),
        (0, False),
        ("0", False),
    ],
)
def test_truth_values(value, truth):
    assert values.flag(value) is truth


@pytest.mark.parametrize("value", [2, "maybe", "", None, [True], 1.0])
def test_what_is_no_truth_value(value):
    assert "neither true nor false" in refused(values.flag, value)


def test_names_are_printable_ascii_up_to_255_characters():
    read = values.name("User")
    assert read("My job, no. 5!") == "My job, no. 5!"
    assert read("x" * 255) == "x" * 255
    assert read("") == "User"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("x" * 256, "has 256 characters"),
        ("é", "not printable ASCII"),
        ("a\nb", "not printable ASCII"),
        ("a\n", "not printable ASCII"),
        ("\ud800", "not printable ASCII"),
        (5, "is a number, not text"),
        (True, "is a truth value, not text"),
        (["a"], "is a list, not text"),
    ],
)
def test_what_is_no_name(value, words):
    assert words in refused(values.name(), value)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("A", ("A",)),
        (["A", "B"], ("A", "B")),
        (("A",), ("A",)),
        ("A, B,", ("A", "B")),
        ("", ()),
        ([], ()),
        (["", "A"], ("A",)),
        ("ANY", ()),
        (["any"], ()),
        (["A", "Any"], ()),
    ],
)
def test_lists_of_names(value, names):
    assert SITES(value) == names


def test_any_is_a_name_like_others_where_it_is_no_wildcard():
    assert TAGS(["ANY"]) == ("ANY",)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["A,B"], "a comma inside the name 'A,B'"),
        ([1], "is a number, not text"),
        ([["A"]], "is a list, not text"),
        (5, "is a number, not a list of texts"),
        ({"A": 1}, "is a record, not a list"),
        (["A"] * 10_001, "has 10001 items"),
        ("é", "ASCII"),
        (None, "is null"),
    ],
)
def test_what_is_no_list_of_names(value, words):
    assert words in refused(SITES, value)


def test_private_is_the_only_word():
    read = values.private
    assert read("Private") == "private"
    assert read(["private"]) == "private"
    assert read("") == ""
    assert "'generic', which is unknown" in refused(read, "generic")
    assert "is a list" in refused(read, ["private", "private"])
    assert "is a number" in refused(read, 5)


@pytest.mark.parametrize(
    ("value", "words"),
    [("", "is empty"), ("  ", "is empty"), ("a\nb", "control characters"), ("x" * 5_000, "5000 characters"),
     (5, "is a number"), ("\ud800", "control characters")],
)  # fmt: skip
def test_what_is_no_text(value, words):
    assert words in refused(values.text, value)


def test_text_may_be_any_script():
    assert values.text("/opt/été/программа ") == "/opt/été/программа "


@pytest.mark.parametrize("path", ["a", "a/b.txt", "./a", "a..b", "..a", "*.root", "dir/", "a b"])
def test_files_of_the_jobs_directory(path):
    assert OUTPUT(path) == (path,)
    assert OUTPUT([path, "other"]) == (path, "other")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/passwd", "an absolute path"),
        ("../a", "leaves its directory"),
        ("a/../../b", "leaves its directory"),
        ("..", "leaves its directory"),
        ("./", "names no file"),
        (5, "is a number"),
        ("a\0b", "control"),
        (" ", "is empty"),
    ],
)
def test_paths_that_are_refused(path, words):
    assert words in refused(OUTPUT, [path])


def test_input_files_may_come_from_anywhere_but_not_under_one_name():
    assert INPUT(["/home/me/a.dat", "b/c.dat"]) == ("/home/me/a.dat", "b/c.dat")
    assert "two files named 'a.dat'" in refused(INPUT, ["x/a.dat", "/y/a.dat"])
    assert INPUT(["a.dat", "b/", "a.dat", "b/"]) == ("a.dat", "b/"), "the same file is one"
    assert INPUT(["./a.dat", "a.dat", "x//y/", "x/./y/"]) == ("./a.dat", "x//y/"), "as it is written first"
    for two in (["a.dat", "x/../a.dat"], ["a.dat", "/a.dat"], ["b", "b/"]):
        assert "two files named" in refused(INPUT, two)
    assert INPUT(["../a", "b/../../c/", "lfn"]) == ("../a", "b/../../c/", "lfn")
    for nothing in ("..", "a/..", "/", "../.", "a/../"):
        assert "names no file" in refused(INPUT, nothing)
    for remote in ("LFN:/vo/a", "lfn:a", "SB:SE|/a", "gsiftp://host/a", "https://host/a"):
        assert "let the payload fetch it" in refused(INPUT, remote)
        assert "let the payload copy it" in refused(OUTPUT, remote)
    assert INPUT([]) == INPUT("") == ()


def test_a_single_file_and_its_default():
    read = values.file_name("std.out")
    assert read("") == "std.out"
    assert read("log/out.txt") == "log/out.txt"
    assert "absolute" in refused(read, "/tmp/x")
    assert values.file_name(absolute=True)("/dev/null") == "/dev/null"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("-n 5 'a b'", ("-n", "5", "a b")),
        ("", ()),
        (["-n", "a b", ""], ("-n", "a b", "")),
        (["-n", 5, -3], ("-n", "5", "-3")),
        ("é 'ü'", ("é", "ü")),
        (["tab\t", "line\n"], ("tab\t", "line\n")),
    ],
)
def test_arguments(value, words):
    assert values.arguments(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a 'b", "that is never closed (character 3"),
        ([1.5], "has a number among its items"),
        ([True], "has a truth value among"),
        ([["a"]], "has a list among"),
        (5, "is a number, not a list"),
        ({"a": 1}, "is a record"),
        ("x" * 200_000, "200000 characters"),
        (["x" * 100_000] * 2, "characters in all"),
        ("a\0", "NUL"),
        (["\ud800"], "surrogate"),
    ],
)
def test_arguments_that_are_refused(value, words):
    assert words in refused(values.arguments, value)


@pytest.mark.parametrize(
    ("value", "variables"),
    [
        ({"A": "b", "N": 5, "F": 1.5}, {"A": "b", "N": "5", "F": "1.5"}),
        (["A=b", "C=d=e", " E=f"], {"A": "b", "C": "d=e", "E": "f"}),
        ("A=b", {"A": "b"}),
        ("A=b;C=;", {"A": "b", "C": ""}),
        ({}, {}),
        ("", {}),
        ({"a": "x", "A": "y"}, {"a": "x", "A": "y"}),
        ({"U": "é\n"}, {"U": "é\n"}),
    ],
)
def test_environment(value, variables):
    assert values.environment(value) == variables


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["A"], "'A', which is not of the form NAME=value"),
        ("=b", "names no variable"),
        ({"A B": "c"}, "names no variable"),
        ({"": "c"}, "names no variable"),
        ({"é": "c"}, "names no variable"),
        (["A=1", "A=2"], "sets A twice"),
        ({"A": True}, "gives A a truth value, not text"),
        ({"A": ["x"]}, "gives A a list, not text"),
        ({"A": "x\0"}, "gives A a NUL"),
        ([5], "has a number among"),
        (5, "is a number"),
        ({"A": "x" * 70_000}, "characters or"),
    ],
)
def test_environments_that_are_refused(value, words):
    assert words in refused(values.environment, value)


def test_the_place_below_an_attribute_is_known():
    with pytest.raises(Mistake) as caught:
        values.environment({"GOOD": "x", "BAD": None})
    assert caught.value.below == "BAD"


def test_requirements_are_scalars_and_lists_of_scalars():
    given_ = {
        "SoftwareTag": ["A", "B"],
        "CPUModel": "Intel Xeon",
        "Memory": 4000,
        "GPU": True,
        "X": 1.5,
        "Y": [1],
    }
    assert values.requirements(given_) == {**given_, "SoftwareTag": ("A", "B"), "Y": (1,)}
    assert values.requirements({}) == {}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("Memory > 4000", "an expression is its entry Constraint"),
        (["a"], "is a list, not a record"),
        ({"Memory": -1}, "an entry Memory that is negative"),
        ({"A": [1, -1]}, "an entry A that is negative"),
        ({"A": {}}, "an entry A that is a record"),
        ({"A": [["x"]]}, "an entry A that has a list inside a list"),
        ({"A": [{"x": 1}]}, "has a record inside a list"),
        ({"A": []}, "an empty list, which nothing can satisfy"),
        ({"A": ""}, "an entry A that is empty"),
        ({"A": None}, "an entry A that is null"),
        ({"A": float("nan")}, "not finite"),
        ({"A": float("inf")}, "not finite"),
        ({"A": 2**63}, "64 bits"),
        ({"A": "x\ny"}, "control"),
        ({"é": 1}, "not printable ASCII"),
        ({"x" * 300: 1}, "300 characters"),
        ({"Mem": 1, "MEM": 2}, "has MEM and Mem"),
        ({"A": [1] * 10_001}, "10001 items"),
    ],
)
def test_requirements_that_are_refused(value, words):
    assert words in refused(values.requirements, value)


def test_requirements_may_be_many():
    assert len(values.requirements({str(index): 1 for index in range(1_000)})) == 1_000


READERS = [
    MEMORY, values.flag, values.name(), SITES, TAGS, values.private, values.text, OUTPUT, INPUT,
    values.file_name(), values.arguments, values.environment, values.requirements,
]  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(ANYTHING)
def test_every_reader_reads_or_raises_a_mistake_that_can_be_printed(value):
    for reader in READERS:
        try:
            reader(value)
        except Mistake as mistake:
            str(mistake).encode()


@given(st.integers())
def test_a_number_as_text_is_the_number(number):
    wide = values.whole(-(10**30), 10**30)
    if abs(number) < 10**18:
        assert wide(str(number)) == wide(number) == number


@pytest.mark.parametrize(
    ("reader", "mark"),
    [
        (TAGS, ","),
        (values.names("ANY", of_places=True), ","),
        (values.environment, ";"),
        (values.arguments, " "),
        (values.arguments, "' '"),
    ],
)
def test_a_text_makes_no_longer_list_than_a_list(reader, mark):
    """A text with 700,000 commas once became a list of as many sites, which stayed in memory."""
    quote = "'" if "'" in mark else ""
    fits, more = (quote + mark.join(f"a{n}=" for n in range(count)) + quote for count in (10_000, 10_001))
    assert len(reader(fits)) == 10_000
    assert "has 10001 items; at most 10000" in refused(reader, more)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2h", 7200), ("1h30m", 5400), ("1 h 30 min", 5400), ("1.5 h", 5400), ("90 MIN", 5400), ("1-12:00:00", 129_600),
        ("00:00:09", 9), ("2 d", 172_800), ("1w", 604_800), ("0.1s", 1), ("3600", 3600), (60.0, 60), ("6e1", 60),
    ],
)  # fmt: skip
def test_times(text, number):
    assert seconds(1, 10**9)(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4G", 4096),
        ("4 GB", 4096),
        ("1.5gib", 1536),
        ("300M", 300),
        ("1 T", 1 << 20),
        ("1k", 1),
        ("2048", 2048),
        (7, 7),
    ],
)
def test_sizes(text, number):
    assert megabytes(0, 2**30)(text) == number


@pytest.mark.parametrize("read", [seconds(1, 10**9), megabytes(1, 2**30)])
@pytest.mark.parametrize(
    "text", ["", "h", "4 parsecs", "4 G 3 M", "1h-2", "-4G", "1h2k", "4GBs", "1:30", "0s", "1e99G", True]
)
def test_what_is_no_time_and_no_size(read, text):
    with pytest.raises(Mistake):
        read(text)


def test_no_number_is_read_that_leaves_the_bounds():
    with pytest.raises(Mistake, match="too large"):
        seconds(1, 10**9)("99999-00:00:00")
    with pytest.raises(Mistake, match="too small"):
        seconds(1, 10**9)("0.0 h")


def test_what_a_job_knows_of_itself_cannot_be_set():
    with pytest.raises(Mistake, match="sets LODE_TOKEN; a job cannot set what begins with LODE_"):
        environment({"LODE_TOKEN": "x"})
    assert environment("lode_token=x;MY_LODE_=y") == {"lode_token": "x", "MY_LODE_": "y"}
