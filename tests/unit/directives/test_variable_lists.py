"""Lists of variables: each value is whole, or its line is refused by name; and what `#` within a word means."""

import re

import pytest
from tests.kits.scripts import translation
from tests.kits.table import hold_all

OPTION = {"#SBATCH": "--export", "#$": "-v", "#PBS": "-v", "#BSUB": "-env"}
KNOW_QUOTES = ["#SBATCH", "#PBS", "#BSUB"]
SYSTEMS_OWN = re.compile(r"(SLURM|SGE|PBS|LSB)_\w+|NSLOTS|NHOSTS|NCPUS")
TORN = "has a comma in quotes or behind a backslash, where that system ends the value."


def outcome(line):
    """The variables that a line sets, and why what is refused."""
    found = translation(f"#!/bin/sh\n{line}\ntrue\n")
    variables = found.attributes["Environment"]
    own = {name: value for name, value in variables.items() if not SYSTEMS_OWN.fullmatch(name)}
    return own, [one.reason for one in found.refusals]


WHOLE = {
    "ARGS='a,b=1',C=2": {"ARGS": "a,b=1", "C": "2"},
    "ALL,PATH='/a,b=/c'": {"PATH": "/a,b=/c"},
    "LIST='a, b',C=2": {"LIST": "a, b", "C": "2"},
    "OPTS='--x=1,--y=2'": {"OPTS": "--x=1,--y=2"},
    "LIST='a,b,c'": {"LIST": "a,b,c"},
    "'A=x,y',B=1": {"A": "x,y", "B": "1"},
    "A=1'2,3'4, B=": {"A": "12,34", "B": ""},
    "A='x y',B": {"A": "x y"},
}


@pytest.mark.parametrize("mark", KNOW_QUOTES)
def test_commas_in_quotes_of_a_list_stay_in_the_value(mark):
    def check(case):
        text, wanted = case
        assert outcome(f'{mark} {OPTION[mark]} "{text}"') == (wanted, []), text

    hold_all(WHOLE.items(), check)


@pytest.mark.parametrize("mark", OPTION)
def test_a_comma_that_the_system_would_not_see_in_the_value_is_refused(mark):
    """The line's own quotes are gone before the list is read."""

    def check(words):
        assert outcome(f"{mark} {OPTION[mark]} {words}") == ({}, [TORN]), words

    lists = [r"ARGS=a\,b=1,C=2", r'"ARGS=a\,b=1,C=2"', "\"A=x y\",B=2,LIST='1,b=3'", 'A=1,LIST="a,b",X=1']
    hold_all(lists, check)


def test_grid_engine_knows_no_quotes_in_a_list():
    def check(text):
        assert outcome(f'#$ -v "{text}"') == ({}, [TORN]), text

    hold_all([text for text in WHOLE if re.search("'[^',]*,[^']*'", text)], check)
    assert outcome('#$ -v "A=x y,B=it\'s",C=2,,') == ({"A": "x y", "B": "it's", "C": "2"}, [])


def test_a_word_of_slurm_with_its_value_behind_an_equals_sign_is_a_list_of_its_own():
    assert outcome("#SBATCH --export=\"ALL,ARGS='a,b=1',C=2\"") == ({"ARGS": "a,b=1", "C": "2"}, [])
    assert outcome("#SBATCH --export='A=1,B=2'") == ({"A": "1", "B": "2"}, [])


@pytest.mark.parametrize("mark", OPTION)
def test_what_is_no_variable_in_a_list_is_refused(mark):
    def check(text):
        assert outcome(f'{mark} {OPTION[mark]} "{text}"')[1] == ["cannot be read as that system would."], text

    hold_all(["A=--x=1,--y=2", "PATH=/a,/b", "A=1,2", "A B=1"], check)


@pytest.mark.parametrize("mark", KNOW_QUOTES)
def test_a_quote_in_a_list_that_is_never_closed_is_refused(mark):
    assert outcome(f'{mark} {OPTION[mark]} "A=it\'s,B=1"') == ({}, ["has a quote that is never closed."])


def test_what_options_say_in_the_place_of_a_list_is_said():
    """They may leave variables out."""
    found = translation("#!/bin/sh\n#PBS -v ARGS='a,b=1',C=2\ntrue\n", {"Environment": {"C": "3"}})
    assert found.refusals == ()
    assert f"-v ARGS=a,b=1,C=2 {TORN[:-1]}: --env says its variables, the job may lack others." in found.notes


def refused(line):
    """What is refused of a line, and why."""
    found = translation(f"#!/bin/sh\n{line}\ntrue\n")
    return [f"{one.option.words} {one.reason}" for one in found.refusals], dict(found.attributes)


MARKS = {
    "-l nodes=1:ppn=1#excl": "-l nodes=1:ppn=1#excl asks for a node of its own, which no job gets.",
    "-l nodes=1:ppn=1#big": "-l nodes=1:ppn=1#big asks for a property of nodes.",
    "-l walltime=60,mem=1gb#much": "-l mem=1gb#much cannot be read as that system would.",
    "-J 1-9#all": "-J 1-9#all cannot be read as that system would.",
}


def test_a_number_sign_within_a_word_of_pbs_begins_no_comment():
    def check(case):
        words, wanted = case
        assert refused(f"#PBS {words} # it's a comment")[0] == [wanted]

    hold_all(MARKS.items(), check)
    said, attributes = refused("#PBS -N run#7 -o out#1 -v A=x#y #and more")
    assert said == []
    assert (attributes["JobName"], attributes["StdOutput"], attributes["Environment"]["A"]) == (
        "run#7",
        "out#1",
        "x#y",
    )
    assert refused("#PBS -l nodes=1:ppn=2#shared")[1]["NumberOfProcessors"] == 2


def test_slurm_and_grid_engine_cut_a_word_at_a_number_sign():
    for line in ("#SBATCH -J run#7", "#$ -N run#7"):
        assert refused(line)[1]["JobName"] == "run", line
