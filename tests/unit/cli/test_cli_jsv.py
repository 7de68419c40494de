"""`lode submit` with a job class and with scripts of the user: which there are, their order, and what becomes of a text."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.jsv_kit import shell, write_script

from lodesman.base.errors import InvalidConfig
from lodesman.languages.jobs import read_description
from lodesman.user.cli import client_jsv
from lodesman.user.cli.client_jsv import RequestOptions, client_request, read_request, read_requests

HELLO = '[ Executable = "/bin/echo";  Arguments = "hello"; /* kept */ ]\n'


# --- request files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "jsv", "job_class"),
    [
        ("", (), ""),
        ("# nothing\n\n   # at all", (), ""),
        ("--jsv script:/a.sh", ("script:/a.sh",), ""),
        ("-jsv /a.sh\n--jsv /b.sh\n", ("/a.sh", "/b.sh"), ""),
        ("-jc app.large # the usual\n", (), "app.large"),
        ("--class app\n-jc other", (), "other"),
        ("-jsv /a -jc app -jsv /b", ("/a", "/b"), "app"),
        ("--jsv '/with blank/a.sh'", ("/with blank/a.sh",), ""),
    ],
)
def test_what_a_request_file_says(text, jsv, job_class):
    assert read_request(text, "f") == RequestOptions(jsv=jsv, job_class=job_class)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--jsv /a\n-q all.q", "f:2: -q is no option of a request file"),
        ("\n\n-jc", "f:3: -jc needs a value"),
        ("--jsv ''", "f:1: --jsv needs a value"),
        ("--jsv 'open", "f:1: No closing quotation"),
        ("app", "f:1: app is no option"),
    ],
)
def test_anything_else_is_an_error_with_file_and_line(text, words):
    with pytest.raises(InvalidConfig) as caught:
        read_request(text, "f")
    assert words in caught.value.message


@given(st.text())
def test_any_text_is_options_or_an_error_with_a_line(text):
    line = 1
    try:
        assert all(read_request(text, "f").jsv)
    except InvalidConfig as wrong:
        line = wrong.data["line"]
    assert 1 <= line <= max(1, len(text.splitlines()))


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The folders of the three request files."""
    here, own, cluster = tmp_path / "here", tmp_path / "own", tmp_path / "request"
    here.mkdir()
    own.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(own))
    monkeypatch.setenv("LODE_REQUEST", str(cluster))
    return here / ".lode_request", own / ".lode_request", cluster


def trust(places, folder=None):
    """The request file of the home folder says so."""
    with places[1].open("a") as own:
        own.write(f"\n--trust {folder or places[0].parent}\n")


def test_a_file_of_the_working_folder_runs_nothing_unless_the_user_trusts_the_folder(places, monkeypatch):
    here, own, cluster = places
    here.write_text("--class mine --jsv /a.sh")
    with pytest.raises(InvalidConfig, match="names programs to run") as refused:
        client_request("", ())
    assert f"--trust {here.parent}" in refused.value.hint
    trust(places, here.parent.parent)  # the folder itself, not those in it
    with pytest.raises(InvalidConfig, match="you do not trust this folder"):
        client_request("", ())
    here.write_text(f"--jsv /a.sh --trust {here.parent}")  # not by its own word
    with pytest.raises(InvalidConfig, match="you do not trust this folder"):
        client_request("", ())
    here.write_text("--class mine")
    assert client_request("", ()).usual_class == "mine"
    here.write_text("--jsv /a.sh")
    for line in ("--trust ../here", f"--trust {here.parent}/.", "--trust ~/../here"):
        own.write_text(line)
        assert len(client_request("", ()).scripts) == 1
    own.unlink()
    cluster.write_text(f"--trust {here.parent}")
    assert len(client_request("", ()).scripts) == 1


def test_the_order_is_command_line_here_home_cluster_each_from_its_end(places):
    for path, names in zip(places, ("WX", "HI", "CD"), strict=True):
        path.write_text("".join(f"--jsv /{name}\n" for name in names))
    trust(places)
    found = client_request("", ("/A", "/B"))
    assert "".join(one.path[1:] for one in found.scripts) == "BAXWIHDC"


def test_the_first_class_of_the_files_counts(places):
    here, own, cluster = places
    own.write_text("--class own")
    cluster.write_text("--class cluster")
    assert client_request("", ()).usual_class == "own"
    here.write_text("--class here")
    assert client_request("mine", ()).usual_class == "here"
    assert client_request("mine", ()).job_class == "mine"


def test_a_file_that_is_two_of_them_counts_once(places, monkeypatch):
    places[1].write_text("--jsv /a.sh")
    monkeypatch.chdir(places[1].parent)
    assert len(client_request("", ()).scripts) == 1


def test_a_file_that_everybody_may_write_to_is_not_used(places):
    places[0].write_text("--jsv /a.sh")
    places[0].chmod(0o666)
    with pytest.raises(InvalidConfig, match="not used"):
        read_requests(os.environ, places[0].parent)


def test_none_is_no_script(places):
    assert client_request("", ("none",)).scripts == ()


# --- what is sent -----------------------------------------------------------------------------------------


@pytest.fixture
def accepting(server, home, monkeypatch):
    monkeypatch.setenv("LODE_REQUEST", str(home / "no-such-file"))
    answer = {"submission": 3, "first": 1, "count": 1, "held": 0, "repeated": False, "notices": []}
    server.on("POST", "/v1/jobs", lambda _asked: answer)
    (home / "hello.jdl").write_text(HELLO)
    return server


@pytest.fixture
def script(home):
    def script(verify: str, name: str = "check.sh") -> str:
        return write_script(home / name, shell(verify)).path

    return script


def body(server):
    *_, found = [one.json for one in server.of("POST", "/v1/jobs")]
    return found


def record(server):
    return read_description(body(server)["text"].encode(), form=body(server)["form"]).record


def test_without_class_and_script_the_text_is_sent_as_it_is(at, accepting):
    assert at("submit", "hello.jdl").code == 0
    assert body(accepting)["text"] == HELLO
    assert "client_jsv" not in body(accepting)


def test_a_script_that_changes_nothing_leaves_the_text_as_it_is(at, accepting, script):
    script("jsv_accept")
    assert at("submit", "--jsv", "check.sh", "hello.jdl").code == 0
    assert body(accepting)["text"] == HELLO


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('Executable = "/bin/x"; jobclass = "old"; VARIANT = "v";', "a.jdl"),
        ("Executable = /bin/x\nJobClass = old\n", "a.cfg"),
        ('{"Executable": "/bin/x"}', "a.json"),
    ],
)
def test_the_class_of_the_command_line_replaces_that_of_the_file(at, accepting, home, text, name):
    (home / name).write_text(text)
    assert at("submit", "--class", "app.large", name).code == 0
    assert record(accepting) == {"Executable": "/bin/x", "JobClass": "app.large"}
    assert body(accepting)["form"] == name[2:]


def test_the_class_of_a_request_file_is_for_what_names_none(at, accepting, home):
    (home / ".lode_request").write_text("-jc usual")
    assert at("submit", "hello.jdl").code == 0
    assert record(accepting)["JobClass"] == "usual"
    accepting.asked.clear()
    (home / "own.jdl").write_text('JobClass = "own";')
    assert at("submit", "own.jdl").code == 0
    assert body(accepting)["text"] == 'JobClass = "own";'


def test_each_script_gets_what_the_one_before_it_left_and_is_named(at, accepting, script):
    first = script("jsv_set_param N one; jsv_sub_add_param l_hard h_rt 60; jsv_correct", "first.sh")
    second = script(
        'jsv_set_param N "$(jsv_get_param N)-two"; jsv_set_param jc app; jsv_correct', "second.sh"
    )
    # Of the command line the last one comes first.
    result = at("submit", "--jsv", second, "--jsv", f"script:{first}", "hello.jdl")
    assert result.code == 0, result.err
    changed = {"JobName": "one-two", "WallTime": 60, "JobClass": "app"}
    assert record(accepting) == {"Executable": "/bin/echo", "Arguments": "hello", **changed}
    assert body(accepting)["client_jsv"] == {"N": second, "l_hard h_rt": first, "jc": second}


def test_a_script_sees_the_class_and_what_was_given_and_nothing_else(at, accepting, script):
    script('jsv_reject "$(jsv_get_param jc) $(jsv_get_param CONTEXT) $(jsv_is_param l_hard)"')
    result = at("submit", "--class", "app", "--jsv", "check.sh", "hello.jdl")
    assert result.code == 1
    assert "Unable to run job: app client false. Your JSV says so:" in result.err
    assert not accepting.of("POST", "/v1/jobs")


EDITS = ("--adds", "l_hard", "ka", "1", "--mods", "l_hard", "kb", "2", "--clears", "v", "A", "--clearp", "N")


def edits(server):
    return [" ".join(one.values()) for one in body(server).get("edits", ())]


def test_edits_go_to_the_server_what_removes_first(at, accepting):
    assert at("submit", *EDITS, "hello.jdl").code == 0
    assert edits(accepting) == ["clearp N", "clears v A", "mods l_hard kb 2", "adds l_hard ka 1"]
    assert body(accepting)["text"] == HELLO


def test_a_script_sees_the_edits_and_has_the_last_word(at, accepting, script, home):
    (home / "named.jdl").write_text(
        'Executable = "/bin/echo"; JobName = "n"; Consumables = {"kb=1", "kc=3"};'
    )
    script('jsv_reject "$(jsv_is_param N) $(jsv_get_param l_hard)"')
    assert "false kb=2,kc=3,ka=1." in at("submit", *EDITS, "--jsv", "check.sh", "named.jdl").err
    script("jsv_set_param N mine; jsv_sub_add_param l_hard ka 5; jsv_sub_del_param l_hard kb; jsv_correct")
    result = at("submit", *EDITS, "--jsv", "check.sh", "named.jdl")
    assert result.code == 0, result.err
    assert edits(accepting) == ["clears v A"]
    found = record(accepting)
    assert (found["JobName"], set(found["Consumables"])) == ("mine", {"ka=5", "kc=3"})


def test_a_script_sees_a_hold_and_can_take_it_away(at, accepting, script):
    script('jsv_reject "$(jsv_get_param h)."')
    assert "Unable to run job: u." in at("submit", "--hold", "--jsv", "check.sh", "hello.jdl").err
    for verify, held in (
        ("jsv_accept", True),
        ("jsv_set_param N n; jsv_correct", True),
        ("jsv_del_param h; jsv_correct", None),
    ):
        script(verify)
        assert at("submit", "--hold", "--jsv", "check.sh", "hello.jdl").code == 0
        assert (body(accepting).get("hold"), "GridEngine" in record(accepting)) == (held, False)
    script("jsv_set_param h o; jsv_correct")
    at("submit", "--hold", "--jsv", "check.sh", "hello.jdl")
    assert (body(accepting).get("hold"), record(accepting)["GridEngine"]) == (None, ["h=o"])


def test_what_the_server_says_of_a_value_is_not_said_here(at, accepting, script):
    script("jsv_set_param m be; jsv_set_param pe_min 1; jsv_set_param pe_max 1; jsv_correct")
    result = at("submit", "--jsv", "check.sh", "hello.jdl")
    assert (result.code, result.err) == (0, "")
    script("jsv_set_param pe_min 2; jsv_set_param pe_max 8; jsv_correct")
    assert at("submit", "--jsv", "check.sh", "hello.jdl").err.count("is a range") == 1


def test_a_class_alone_is_a_job(at, accepting, home):
    result = at("submit", "--class", "sleeper", "--memory", "4G")
    assert (result.code, result.out, result.err) == (0, "1\n", "")
    assert record(accepting) == {"JobClass": "sleeper", "Memory": 4096}
    (home / "empty.jdl").write_text("[ ]")
    assert at("submit", "--class", "sleeper", "empty.jdl").code == 0
    assert record(accepting) == {"JobClass": "sleeper"}
    assert at("submit").code == 2


@pytest.mark.parametrize(
    ("words", "usual"),
    [
        (("--", "true"), True),
        (("--name", "mine", "--", "true"), None),
        (("--set", "jobname=mine", "--", "true"), None),
        (("hello.jdl",), None),
    ],
)
def test_the_name_of_a_program_is_no_word_of_the_user(at, accepting, script, words, usual):
    assert at("submit", "--class", "app", *words).code == 0
    assert body(accepting).get("usual_name") == usual
    script("jsv_set_param N new; jsv_correct")
    assert at("submit", "--jsv", "check.sh", *words).code == 0
    assert "usual_name" not in body(accepting)


def test_a_script_sees_the_resources_of_the_server(at, accepting, script, home):
    """Without its answer those of a new Grid Engine, where vf is virtual_free."""
    (home / "named.jdl").write_text('Executable = "/bin/echo"; Consumables = {"vf=1G"};')
    script('jsv_reject "$(jsv_get_param l_hard)"')
    assert "virtual_free=1G." in at("submit", "--jsv", "check.sh", "named.jdl").err
    row = {"name": "volume_flow", "shortcut": "vf", "type": "INT", "consumable": "NO", "default": "0"}
    accepting.on("GET", "/v1/quotas/resources", {"resources": [row]})
    assert "volume_flow=" in at("submit", "--jsv", "check.sh", "named.jdl").err


def test_a_value_that_no_job_can_have_is_told_with_the_script_that_gave_it(at, accepting, script):
    path = script("jsv_set_param t_min 0; jsv_set_param t_max 3; jsv_correct")
    result = at("submit", "--jsv", "check.sh", "hello.jdl")
    assert (result.code, "Parameters is the text" in result.err) == (1, True)
    assert f"It is from your JSV {path}." in result.err


def test_a_script_that_must_be_made_executable(at, accepting, home):
    (home / "plain.sh").write_text("#!/bin/sh\n")
    result = at("submit", "--jsv", "plain.sh", "hello.jdl")
    assert f"not executable. Make it executable: chmod +x {home / 'plain.sh'}" in result.err


def test_the_first_that_rejects_ends_the_chain(at, accepting, script, home):
    script("jsv_reject", "no.sh")
    script(f"touch {home}/ran; jsv_accept", "after.sh")
    assert at("submit", "--jsv", "after.sh", "--jsv", "no.sh", "hello.jdl").code == 1
    assert not (home / "ran").exists()


def test_what_a_script_logs_is_shown(at, accepting, script):
    path = script("jsv_log_warning careful; jsv_accept")
    assert (
        at("submit", "--jsv", "check.sh", "hello.jdl").err == f"lode: hello.jdl: {path}: WARNING: careful\n"
    )


def test_a_script_that_is_not_there_is_refused_before_any_runs(at, accepting, script, home):
    script(f"touch {home}/ran; jsv_accept")
    result = at("submit", "--jsv", "no.sh", "--jsv", "check.sh", "hello.jdl")
    assert (result.code, (home / "ran").exists()) == (1, False)
    assert "is either not a file or not executable" in result.err


def test_a_time_out_as_grid_engine_has_it(at, accepting, script, monkeypatch):
    monkeypatch.setenv("SGE_JSV_TIMEOUT", "1")
    script("sleep 60")
    assert "got no response from JSV script" in at("submit", "--jsv", "check.sh", "hello.jdl").err


def test_a_wrong_request_file_stops_all(at, accepting, home):
    (home / ".lode_request").write_text("--jsv\n")
    result = at("submit", "hello.jdl")
    assert (result.code, ".lode_request:1: --jsv needs a value" in result.err) == (1, True)


@pytest.mark.parametrize("changed", [True, False])
def test_a_place_is_said_of_a_text_that_is_the_users_own(at, accepting, changed):
    error = {
        "code": "invalid-job",
        "message": "x is wrong (line 7, column 3).",
        "data": {"line": 7, "column": 3},
    }
    accepting.on("POST", "/v1/jobs", lambda _asked: (400, {"error": error}))
    result = at("submit", *(("--class", "app") if changed else ()), "hello.jdl")
    assert result.err.startswith(
        "lode: hello.jdl: x is wrong" if changed else "lode: hello.jdl:7:3: x is wrong"
    )


def test_a_plan_goes_through_the_scripts_too(at, accepting, script):
    script("jsv_reject no")
    assert "Unable to run job: no." in at("plan", "job", "--jsv", "check.sh", "hello.jdl").err


def test_programs_read_the_refusal_of_a_script(at, accepting, script):
    path = script("jsv_reject no")
    found = json.loads(at("submit", "--json", "--jsv", "check.sh", "hello.jdl").out)
    assert found["errors"][0]["data"]["jsv"] == path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("²", None), ("٣", None), ("9" * 5_000, None), ("0", None), ("1_0", None), ("inf", None)],
)
def test_a_time_that_is_no_number_of_seconds_is_the_usual_one(text, seconds):
    usual = client_jsv._settings({}).time_out_seconds
    assert client_jsv._settings({"SGE_JSV_TIMEOUT": text}).time_out_seconds == (seconds or usual)
