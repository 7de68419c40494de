"""Where an attribute stands in a text, however it is spelled there and in the error."""

from __future__ import annotations

import pytest

from lodesman.base.errors import Impossible, InvalidJob, LodesmanError, SyntaxFault
from lodesman.languages.jobs import locate, read_description
from lodesman.languages.jobs.attributes import invalid, place_of
from lodesman.languages.jobs.record import NO_POSITIONS
from lodesman.languages.jobs.values import Mistake

TEXTS = {
    "jdl": """[
  executable = "x";
  SITES = {"A"};
  bannedsite = "B";
  requirements = [ disk = 5;
     SoftwareTag = "r" ];
  Parameters.x = {1};
  Environment = [ Path = "a" ];
]""",
    "json": """{
  "executable": "x",
  "SITES": ["A"],
  "bannedsite": "B",
  "requirements": { "disk": 5,
     "SoftwareTag": "r" },
  "Parameters.x": [1],
  "Environment": { "Path": "a" }
}""",
}


@pytest.mark.parametrize(
    ("attribute", "line"),
    [
        ("Executable", 2),
        ("Site", 3),
        ("Sites", 3),
        ("BannedSite", 4),
        ("Requirements", 5),
        ("Requirements.Disk", 5),
        ("Requirements.disk ", 5),
        ("Requirements/SoftwareTag", 6),
        ("Requirements.softwaretag", 6),
        ("Requirements.Absent", 5),
        ("Parameters.x", 7),
        ("Environment/Path", 8),
        ("Environment/Other", 8),
        ("Memory", None),
        ("Memory/x", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("form", ["jdl", "json"])
def test_case_aliases_and_parts(form, attribute, line):
    parsed = read_description(TEXTS[form], form=form)
    found = place_of(attribute, parsed.positions)
    assert (found and found[0]) == line


def test_sections_of_a_cfg():
    text = "Executable = x\nsite = A\nRequirements\n{\n  Disk = 5\n}\n"
    places = read_description(text, form="cfg").positions
    assert [place_of(name, places)[0] for name in ("Sites", "Requirements.DISK")] == [2, 5]
    assert place_of("Requirements.Memory", places) == place_of("Requirements", places)


def test_without_positions_there_is_no_place():
    assert place_of("Site", NO_POSITIONS) is None
    wrong = invalid("Site", Mistake("is wrong"), NO_POSITIONS, right="another")
    assert (wrong.message, wrong.hint, wrong.data) == (
        "Site is wrong.",
        "Give another.",
        {"attribute": "Site"},
    )


def test_an_error_gets_its_position_once():
    places = {"site": (3, 4)}
    wrong = InvalidJob("Site: there is none.", attribute="Site")
    for _ in range(2):
        locate(wrong, places)
        assert wrong.message == "Site: there is none (line 3, column 4)."
        assert wrong.data == {"attribute": "Site", "line": 3, "column": 4}


def test_the_words_of_why_stay_as_they_are():
    wrong = Impossible("The job can never run: no.", attribute="Site")
    locate(wrong, {"Site": (3, 4)})
    assert (wrong.message, wrong.data["line"], wrong.data["column"]) == ("The job can never run: no.", 3, 4)


@pytest.mark.parametrize("data", [{}, {"attribute": ""}, {"attribute": "Memory"}])
def test_an_error_of_no_attribute_has_no_place(data):
    wrong = LodesmanError("no", **data)
    locate(wrong, {"Site": (3, 4)})
    assert (wrong.message, wrong.data) == ("no", data)


def test_a_fault_of_a_text_says_its_line_and_column_first():
    with pytest.raises(SyntaxFault, match=r"\Aline 2, column 14: ") as found:
        read_description('Type = "Job";\nExecutable = ;', form="jdl")
    assert (found.value.data["line"], found.value.data["column"]) == (2, 14)
