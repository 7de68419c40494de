"""From a record to a checked job, and the errors about a wrong one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob, LodesmanError
from lodesman.languages.jobs import JobSpec, cohorts, read_description, read_job

DATA = Path(__file__).parents[2] / "data"


def spec(**attributes):
    return read_job({"Executable": "x", **attributes}).spec


def wrong(text=None, **attributes):
    """The InvalidJob for a JDL text, or for attributes without positions."""
    record, positions = {"Executable": "x", **attributes}, {}
    if text is not None:
        parsed = read_description(text, form="jdl")
        record, positions = parsed.record, parsed.positions
    with pytest.raises(InvalidJob) as caught:
        read_job(record, positions)
    return caught.value


def check_printable(error):
    str(error).encode()
    assert error.data


def test_the_smallest_job_has_all_defaults():
    description = read_job({"Executable": "ls"})
    assert description.spec == JobSpec(executable="ls")
    assert description.members is None
    assert description.warnings == ()
    assert description.group == ""
    assert description.record == {"Executable": "ls"}


def test_every_attribute_reaches_its_field():
    record = {
        "JobName": "n",
        "Executable": "e",
        "Arguments": "-a 'b c'",
        "StdInput": "in",
        "StdOutput": "o",
        "StdError": "r",
        "InputSandbox": ["/tmp/i"],
        "OutputSandbox": "*.root",
        "Environment": {"A": "b"},
        "JobType": "Merge",
        "Priority": 7,
        "JobGroup": "proj",
        "JobClass": "app1",
        "Variant": "v2",
        "Site": ["S1", "S2"],
        "BannedSite": "S2",
        "GridCE": "ce1",
        "Stations": "d0, cdf",
        "Platform": "el9",
        "PilotType": "private",
        "ForceGeneric": "yes",
        "SubmitPool": "slurm",
        "Tag": ["GPU"],
        "CPUTime": 3600,
        "WallTime": 7200,
        "NumberOfProcessors": 4,
        "Memory": 2000,
        "Requirements": {"Disk": 10, "SoftwareTag": ["A", "B"]},
        "MaxAttempts": 5,
        "MaxOutput": 100,
        "Exclusive": True,
        "ExpectedTime": "3600",
        "VacatePriority": -5,
        "OwnerGroup": "physics",
    }
    description = read_job(record)
    assert description.group == "physics"
    assert description.spec == JobSpec(
        name="n",
        executable="e",
        arguments=("-a", "b c"),
        std_input="in",
        std_output="o",
        std_error="r",
        input_sandbox=("/tmp/i",),
        output_sandbox=("*.root",),
        environment={"A": "b"},
        job_type="Merge",
        user_priority=7,
        project="proj",
        job_class="app1",
        variant="v2",
        sites=("S1", "S2"),
        banned_sites=("S2",),
        grid_ces=("ce1",),
        stations=("d0", "cdf"),
        platforms=("el9",),
        pilot_type="private",
        force_generic=True,
        submission_pools=("slurm",),
        tags=("GPU",),
        norm_cpu_seconds=3600,
        wall_seconds=7200,
        cores=4,
        memory_mb=2000,
        requirements={"Disk": 10, "SoftwareTag": ("A", "B")},
        max_attempts=5,
        max_output_mb=100,
        exclusive=True,
        expected_seconds=3600,
        vacate_priority=-5,
    )


def test_names_in_any_case_and_aliases():
    assert spec(cputime="3.6e3", SITES=["A"], userpriority="0", maxram=5) == JobSpec(
        executable="x", norm_cpu_seconds=3600, sites=("A",), user_priority=0, memory_mb=5
    )


def test_any_is_no_condition():
    assert spec(Site="ANY", Platform=["any"], GridCE="Any", Stations="ANY") == JobSpec(executable="x")


def test_percent_signs_of_a_single_job_mean_nothing():
    found = spec(Arguments="+%s %n %(x)s %% %j", JobName="100%", Environment={"A": "%s"})
    assert found.arguments == ("+%s", "%n", "%(x)s", "%%", "%j")
    assert found.name == "100%"
    assert found.environment == {"A": "%s"}


@pytest.mark.parametrize(
    ("attributes", "attribute", "words"),
    [
        ({"Executable": ""}, "Executable", "Executable is empty"),
        ({"Executable": ["a"]}, "Executable", "is a list, not text"),
        ({"CPUTime": 0}, "CPUTime", "is too small"),
        ({"CPUTime": -5}, "CPUTime", "is negative"),
        ({"CPUTime": 10**9 + 1}, "CPUTime", "is too large"),
        ({"CPUTime": "long"}, "CPUTime", "is the text 'long', not a number"),
        ({"CPUTime": True}, "CPUTime", "is a truth value, not a number"),
        ({"NumberOfProcessors": 0}, "NumberOfProcessors", "is too small"),
        ({"NumberOfProcessors": 4097}, "NumberOfProcessors", "is too large"),
        ({"Priority": 11}, "Priority", "is too large"),
        ({"Memory": 1.5}, "Memory", "is 1.5, not a whole number"),
        ({"MaxAttempts": 0}, "MaxAttempts", "is too small"),
        ({"VacatePriority": -(10**9) - 1}, "VacatePriority", "is too small"),
        ({"VacatePriority": 0.5}, "VacatePriority", "not a whole number"),
        ({"Stations": [f"s{n}" for n in range(51)]}, "Stations", "has 51 names; at most 50"),
        ({"Stations": 7}, "Stations", "is a number"),
        ({"ExpectedTime": -1}, "ExpectedTime", "is negative"),
        ({"JobName": "x" * 256}, "JobName", "has 256 characters"),
        ({"JobName": "naïve"}, "JobName", "not printable ASCII"),
        ({"Site": [1]}, "Site", "is a number, not text"),
        ({"PilotType": "generic"}, "PilotType", "'generic', which is unknown"),
        ({"ForceGeneric": "perhaps"}, "ForceGeneric", "neither true nor false"),
        ({"OutputSandbox": ["/etc/passwd"]}, "OutputSandbox", "an absolute path"),
        ({"OutputSandbox": [f"*{n}" for n in range(101)]}, "OutputSandbox", "has 101 patterns; at most 100"),
        ({"InputSandbox": ["a/.."]}, "InputSandbox", "which names no file"),
        (
            {"InputSandbox": ["LFN:/vo/x.root"]},
            "InputSandbox",
            "only local files are taken along; let the payload fetch it",
        ),
        ({"OutputSandbox": ["LFN:/vo/x.root"]}, "OutputSandbox", "nothing is copied to storage"),
        ({"Environment": {"A B": "c"}}, "Environment", "names no variable"),
        ({"Requirements": "other.Memory > 5"}, "Requirements", "an expression is its entry Constraint"),
        ({"Exclusive": "maybe"}, "Exclusive", "neither true nor false"),
        ({"Owner": ["me"]}, "Owner", "is a list, not text"),
        (
            {"Parameters": 2, "Arguments": "in_PARAM_.txt"},
            "Arguments",
            "has _PARAM_, the placeholder of gLite",
        ),
        ({"Environment": {"LODE_JOB_ID": "1"}}, "Environment", "a job cannot set what begins with LODE_"),
        ({"Site": "A", "Sites": "B"}, "Sites", "is the same attribute as Site"),
        ({"Tag": "A", "TAG": "B"}, "TAG", "is given twice, first as Tag"),
        ({"Parameters": 2, "PARAMETERS": 2}, "PARAMETERS", "is given twice, first as Parameters"),
        ({"MyOwn": None}, "MyOwn", "null"),
        ({"MyOwn": [1, {"a": float("nan")}]}, "MyOwn", "finite"),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy(attributes, attribute, words):
    error = wrong(**attributes)
    assert error.data["attribute"] == attribute
    assert words in error.message
    assert error.hint.startswith("Give ")
    assert error.message.endswith(".")
    assert "line" not in error.data


def test_a_job_without_an_executable():
    error = wrong('[ JobName = "x" ]')
    assert error.message == "Executable is missing."
    assert error.data == {"attribute": "Executable"}


@pytest.mark.parametrize(
    ("text", "line", "column", "attribute"),
    [
        ('Executable = "x";\n  CPUTime = -1;', 2, 3, "CPUTime"),
        ('[ cputime = 5.5; Executable = "x" ]', 1, 3, "cputime"),
        ('Executable = "x"; Requirements = [\n  Good = 1;\n  Memory = -1 ]', 3, 3, "Requirements"),
        ('Executable = "x"; Environment = [ GOOD = "a";\n BAD = {1} ]', 2, 2, "Environment"),
        ('Executable = "x";\nParameters = 0', 2, 1, "Parameters"),
        ('Executable = "x"; Parameters = 3;\nParameters.X = {1}', 2, 1, "Parameters.X"),
        ('Executable = "x"; Parameters = 3;\n JobName = "%(Y)s"', 2, 2, "JobName"),
    ],
)
def test_errors_know_their_line(text, line, column, attribute):
    error = wrong(text)
    assert (error.data["line"], error.data["column"]) == (line, column)
    assert error.data["attribute"] == attribute
    assert f"(line {line}, column {column})" in error.message


def test_positions_come_from_every_language():
    for text, place in [
        ('{"Executable": "x",\n "CPUTime": -1}', (2, 2)),
        ("Executable = x\n\n  CPUTime = -1\n", (3, 3)),
    ]:
        parsed = read_description(text)
        with pytest.raises(InvalidJob) as caught:
            read_job(parsed.record, parsed.positions)
        assert (caught.value.data["line"], caught.value.data["column"]) == place


def test_unknown_attributes_are_kept_with_a_warning_and_a_suggestion():
    parsed = read_description(
        'Executable = "x";\nCPUTme = 5;\n MyOwn = {1, [ A = 2 ]};\nParameterz = 3', form="jdl"
    )
    description = read_job(parsed.record, parsed.positions)
    assert description.spec.extra == {"CPUTme": 5, "MyOwn": [1, {"A": 2}], "Parameterz": 3}
    first, second, third = description.warnings
    assert (first.attribute, first.line, first.column) == ("CPUTme", 2, 1)
    assert first.message.endswith("Did you mean CPUTime?")
    assert "Did you mean" not in second.message
    assert third.message.endswith("Did you mean Parameters?")


@pytest.mark.slow
def test_many_unknown_attributes_are_refused_before_they_cost_anything():
    started = time.process_time()
    error = wrong(**{f"CPUTimf{index}{'x' * 200}": 1 for index in range(100_000)})
    assert "100000 unknown attributes" in error.message
    assert time.process_time() - started < 30
    read_job({"Executable": "x", **{f"Own{index}": 1 for index in range(256)}})


def test_a_name_that_is_no_text():
    with pytest.raises(InvalidJob):
        read_job({"Executable": "x", 5: 1})  # type: ignore[dict-item]


def test_the_samples_become_jobs():
    specs = {}
    for path in [*DATA.glob("jdl/*.jdl"), *DATA.glob("cfg/*.cfg")]:
        if path.stem in ("grid_expressions", "resources"):
            continue
        parsed = read_description(path.read_bytes())
        description = read_job(parsed.record, parsed.positions)
        assert description.warnings == ()
        specs[path.name] = [cohort.spec for cohort in cohorts(description, places=parsed.positions)]
    rfc = specs["rfc7_example.jdl"]
    assert rfc == specs["rfc7_example_without_semicolon.jdl"]
    assert rfc[0].requirements == {
        "SoftwareTag": ("AppVersion1", "AppVersion2"),
        "CPUModel": "Intel Xeon",
        "Memory": 4000,
    }
    commented = specs["commented.jdl"][0]
    assert (commented.norm_cpu_seconds, commented.memory_mb, commented.cores) == (3600, 2000, 2)
    assert commented.environment == {"OMP_NUM_THREADS": "1", "MESSAGE": "a = b"}
    assert [spec.sites for spec in specs["named_parameters.jdl"]] == [("LCG.CERN.ch",), ("LCG.CNAF.it",)]


def test_one_job_in_three_languages_is_one_spec():
    texts = [
        '[ Executable = "x"; Arguments = "a b"; CPUTime = 5; Site = {"A","B"}; Requirements = [ Memory = 4 ] ]',
        "Executable = x\nArguments = a b\nCPUTime = 5\nSite = A, B\nRequirements {\n Memory = 4\n}",
        '{"Executable": "x", "Arguments": "a b", "CPUTime": 5, "Site": ["A", "B"], "Requirements": {"Memory": 4}}',
    ]
    assert len({repr(read_job(read_description(text).record).spec) for text in texts}) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("aé%s(X)\n\"' ,=;/.", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "b", "%s"]), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["Executable", "Arguments", "JobName", "Environment", "Requirements", "Site", "BannedSite", "CPUTime", "Memory",
     "InputSandbox", "OutputSandbox", "Parameters", "Parameters.X", "ParameterStart", "ParameterStep.X",
     "ParameterFactor", "WallTime", "Tag", "PilotType", "Own", "executable", "StdOutput", "Priority"]
)  # fmt: skip


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.booleans())
def test_any_record_becomes_a_job_or_an_error_that_can_be_printed(record, runnable):
    if runnable:
        record["Executable"] = "x"
    try:
        description = read_job(record)
        cohorts(description)
    except LodesmanError as error:
        check_printable(error)
    else:
        assert description.record is record


def test_a_typical_job_is_read_fast():
    record = {
        "JobName": "tile_17", "Executable": "render.py", "Arguments": "--tile 17 --of 64", "JobGroup": "render",
        "InputSandbox": ["render.py", "scene.json"], "OutputSandbox": ["tile_17.png"], "Priority": 3,
        "CPUTime": 3600, "Site": ["LCG.CERN.ch", "LCG.CNAF.it"], "Platform": "x86_64-el9", "Memory": 2000,
        "Requirements": {"SoftwareTag": ["A", "B"], "Memory": 4000},
    }  # fmt: skip
    started = time.process_time()
    for _ in range(1_000):
        read_job(record)
    assert time.process_time() - started < 1  # 60 times slower than measured when quiet


@pytest.mark.parametrize("name", ["GridEngine", "gridengine"])
def test_what_is_kept_for_grid_engine_is_no_unknown_attribute(name):
    description = read_job({"Executable": "x", name: ["m=be"], "Gridengin": 1})
    assert [notice.attribute for notice in description.warnings] == ["Gridengin"]
    assert description.spec.extra[name] == ["m=be"]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("run.sh -x", "Give the file alone; -x belongs in Arguments."),
        ("./run.sh -x y", "Give the file alone; -x y belongs in Arguments."),
        (" run.sh", "Give its name without blanks."),
    ],
)
def test_a_program_of_the_sandbox_with_its_arguments_behind_it_is_refused(program, words):
    with pytest.raises(InvalidJob) as caught:
        read_job({"Executable": program, "InputSandbox": ["bin/run.sh"]})
    assert "the file of the InputSandbox is run.sh" in str(caught.value)
    assert caught.value.hint == words


@pytest.mark.parametrize(
    ("attribute", "path"),
    [
        ("Executable", "$EXPROOT/bin/run"),
        ("Executable", "/opt/${V}/run"),
        ("Executable", "~/bin/run.sh"),
        ("Executable", "~ann/run"),
        ("Executable", "$(which x)"),
        ("Executable", "`which x`"),
        ("StdInput", "$DATA/in"),
        ("StdOutput", "out.$JOBID"),
        ("StdError", "~/err"),
        ("OutputSandbox", ["a", "$HOME/b", "~/c"]),
    ],
)
def test_a_path_that_only_a_shell_would_find_has_a_notice(attribute, path):
    (notice,) = read_job({"Executable": "x", attribute: path}).warnings
    assert (notice.attribute, "no variable and no ~ is read in it" in notice.message) == (attribute, True)


@pytest.mark.parametrize("program", ["python fit.py", "/bin/echo hello", "/opt/my app/run", "run.sh -x"])
def test_a_program_with_words_behind_it_has_a_notice(program):
    (notice,) = read_job({"Executable": program, "InputSandbox": ["fit.py"]}).warnings
    assert notice.message.startswith(f"Executable is {program}: all of it is the name of a program.")


@pytest.mark.parametrize(
    "program", ["run.sh", "./run.sh", "my run.sh", "./my run.sh", "a~", "cost$", "$HOME.sh", "%s"]
)
def test_other_programs_have_none(program):
    sandbox = ["run.sh", "x/my run.sh", "$HOME.sh"]
    record = {
        "Executable": program,
        "InputSandbox": sandbox,
        "StdInput": "",
        "StdOutput": "",
        "OutputSandbox": [""],
    }
    assert read_job(record).warnings == ()
