"""`lode submit`: what is read, uploaded, sent, printed and refused."""

import hashlib
import io
import os
from typing import Any

import pytest

from lodesman.base.errors import Unavailable
from lodesman.user.cli.commands import submit
from lodesman.user.cli.session import Session
from lodesman.wire.client import Client
from lodesman.wire.requests import FileBody

HELLO = '[ Executable = "/bin/echo"; Arguments = "hello"; ]\n'


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def accepting(server):
    """A server that takes everything and counts ids on from 12."""
    known: dict[str, int] = {}
    state: dict[str, Any] = {"next": 12, "held": 0, "notices": []}

    def store(asked):
        digest = asked.headers["X-Sha256"]
        assert sha(asked.body) == digest
        known[digest] = len(asked.body)
        return {"sha256": digest, "size": len(asked.body)}

    def has(asked):
        digest = asked.path.rpartition("/")[2]
        if digest not in known:
            return 404, {"error": {"code": "not-found", "message": "You have not uploaded such a file."}}
        return {"sha256": digest, "size": known[digest]}

    def take(asked):
        count = state.get("count", 1)
        if asked.json.get("dry_run"):
            return {"count": count, "held": state["held"], "notices": state["notices"], "dry_run": True}
        first, state["next"] = state["next"], state["next"] + count
        return {"submission": 3, "first": first, "count": count, "held": state["held"], "repeated": False,
                "notices": state["notices"]}  # fmt: skip

    server.on("GET", r"/v1/sandboxes/[0-9a-f]{64}", has)
    server.on("POST", "/v1/sandboxes", store)
    server.on("POST", "/v1/jobs", take)
    server.state, server.known = state, known
    return server


def asked_about(server):
    """What the server was asked about before anything was submitted."""
    return [one.json for one in server.of("POST", "/v1/jobs") if one.json.get("dry_run")]


def sent(server):
    """What was submitted."""
    return [one.json for one in server.of("POST", "/v1/jobs") if not one.json.get("dry_run")]


def without_times(sandboxes):
    """Files of an input sandbox, but for their times of change."""
    return {
        name: {word: file[word] for word in file if word != "modified"} for name, file in sandboxes.items()
    }


def test_one_job_prints_its_id_and_nothing_else(at, accepting, home):
    (home / "hello.jdl").write_text(HELLO)
    result = at("submit", "hello.jdl")
    assert (result.code, result.out, result.err) == (0, "12\n", "")
    (body,) = sent(accepting)
    assert body["text"] == HELLO
    assert body["form"] == "jdl"
    assert not {"group", "hold_if_impossible", "sandboxes"} & set(body)
    assert len(body["request_id"]) == 36


def test_an_array_prints_its_range(at, accepting, home):
    accepting.state["count"] = 200
    (home / "many.json").write_text('{"Executable": "/bin/echo", "Arguments": "%n", "Parameters": 200}')
    assert at("submit", "many.json").out == "12-211\n"
    assert sent(accepting)[0]["form"] == "json"


def test_options_travel(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    at("submit", "a.jdl", "--group", "bio", "--hold-if-impossible", "--form", "jdl")
    body = sent(accepting)[0]
    assert (body["group"], body["hold_if_impossible"], body["form"]) == ("bio", True, "jdl")


def test_jobs_that_are_submitted_on_hold(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    result = at("submit", "a.jdl", "--hold")
    assert (result.out, sent(accepting)[0]["hold"]) == ("12\n", True)
    assert result.err == "lode: a.jdl: Held until released: lode release 12\n"


def test_standard_input_is_a_description(at, accepting):
    assert at("submit", "-", stdin=b"Executable = /bin/echo\n").out == "12\n"
    assert sent(accepting)[0]["form"] == "cfg"


def test_a_byte_order_mark_does_not_travel(at, accepting):
    at("submit", "-", stdin=b"\xef\xbb\xbf" + HELLO.encode())
    assert sent(accepting)[0]["text"] == HELLO


def test_a_name_of_the_command_line_wins(at, accepting, home):
    (home / "a.jdl").write_text('[ Executable = "/bin/echo"; jobname = "old"; ]')
    at("submit", "a.jdl", "--name", "new")
    text = sent(accepting)[0]["text"]
    assert '"new"' in text
    assert "old" not in text
    assert at("submit", "a.jdl", "--name", "x" * 300).code == 1
    assert len(sent(accepting)) == 1


def test_each_file_is_a_submission_with_its_own_request_id(at, accepting, home):
    for name in ("a.jdl", "b.jdl"):
        (home / name).write_text(HELLO)
    assert at("submit", "a.jdl", "b.jdl").out == "12\n13\n"
    assert len({body["request_id"] for body in sent(accepting)}) == 2


def test_a_request_id_of_the_caller_travels_one_per_file(at, accepting, home):
    for name in ("a.jdl", "b.jdl"):
        (home / name).write_text(HELLO)
    for _ in range(2):
        at("submit", "a.jdl", "b.jdl", "--request-id", "nightly")
    assert [body["request_id"] for body in sent(accepting)] == ["nightly/1", "nightly/2"] * 2


def test_a_lost_answer_is_asked_for_again_with_the_same_id(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    answers = iter([(503, {"error": {"code": "unavailable", "message": "not now"}})])
    before = accepting.routes[:]
    accepting.on("POST", "/v1/jobs", lambda asked: next(answers, None) or before[0][2](asked))
    assert at("submit", "a.jdl").out == "12\n"
    first, second = sent(accepting)
    assert first == second


def test_input_files_are_found_beside_the_description_and_uploaded_once(at, accepting, home):
    folder = home / "jobs"
    folder.mkdir()
    (folder / "run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "copy.sh").write_bytes(b"#!/bin/sh\n")
    (home / "data.bin").write_bytes(b"\0" * 100)
    (folder / "a.jdl").write_text(
        f'[ Executable = "run.sh"; InputSandbox = {{"run.sh", "copy.sh", "{home}/data.bin"}}; ]'
    )
    assert at("submit", "jobs/a.jdl").code == 0
    uploads = accepting.of("POST", "/v1/sandboxes")
    assert sorted(len(one.body) for one in uploads) == [10, 100]
    script = {"sha256": sha(b"#!/bin/sh\n"), "size": 10}
    assert without_times(sent(accepting)[0]["sandboxes"]) == {
        "run.sh": script, "copy.sh": script, f"{home}/data.bin": {"sha256": sha(b"\0" * 100), "size": 100},
    }  # fmt: skip
    assert at("submit", "jobs/a.jdl").code == 0
    assert len(accepting.of("POST", "/v1/sandboxes")) == 2


def test_an_empty_input_file_is_a_file(at, accepting, home):
    (home / "empty").write_bytes(b"")
    (home / "a.jdl").write_text('[ Executable = "/bin/cat"; InputSandbox = "empty"; ]')
    assert at("submit", "a.jdl").code == 0
    assert without_times(sent(accepting)[0]["sandboxes"]) == {"empty": {"sha256": sha(b""), "size": 0}}


def test_what_a_file_may_be_and_when_it_was_changed_is_sent(at, accepting, home):
    for name, mode, at_ in (("run.sh", 0o755, 1_000.9), ("data", 0o644, -5.0)):
        (home / name).write_bytes(b"")
        (home / name).chmod(mode)
        os.utime(home / name, (at_, at_))
    (home / "j.jdl").write_text('Executable = "run.sh"; InputSandbox = {"run.sh", "data"};')
    assert at("submit", "j.jdl").code == 0
    plain = {"sha256": sha(b""), "size": 0}
    script = {**plain, "executable": True, "modified": 1_000}
    assert sent(accepting)[0]["sandboxes"] == {"run.sh": script, "data": plain}


@pytest.mark.parametrize("is_script", [False, True])
def test_a_script_with_line_ends_of_dos_is_refused_before_it_is_sent(at, accepting, home, is_script):
    (home / "run.sh").write_bytes(b"#!/bin/sh\r\necho hi\r\n")
    (home / "job.jdl").write_text('Executable = "run.sh"; InputSandbox = {"run.sh"};')
    done = at("submit", "run.sh" if is_script else "job.jdl")
    assert (done.code, sent(accepting)) == (1, [])
    assert "the first line of" in done.err
    assert "ends with CR LF" in done.err
    assert "sed -i 's/\\r$//'" in done.err
    (home / "run.sh").write_bytes(b"#!/bin/sh\necho hi\r\n")
    assert at("submit", "run.sh" if is_script else "job.jdl").code == 0


@pytest.mark.parametrize("is_script", [False, True])
def test_a_script_with_a_byte_order_mark_is_refused_and_its_lines_are_not_said_to_be_unread(
    at, accepting, home, is_script
):
    """No node finds its interpreter, and no line of a batch system was read: one job without its array ended well."""
    (home / "run.sh").write_bytes(b"\xef\xbb\xbf#!/bin/sh\n#SBATCH --array=1-3\necho hi\n")
    (home / "run.sh").chmod(0o755)
    (home / "job.jdl").write_text('Executable = "run.sh"; InputSandbox = {"run.sh"};')
    done = at("submit", "run.sh" if is_script else "job.jdl")
    assert (done.code, sent(accepting)) == (1, [])
    assert "begins with a byte order mark (BOM)" in " ".join(done.err.split())
    assert "after the first command" not in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Executable = ./run.sh\nInputSandbox = run.sh\n", []),
        ('{"Executable": "run.sh", "InputSandbox": ["./run.sh", "run.sh"]}', []),
        ('Executable = "%s.sh"; Parameters = {"run", "go"}; InputSandbox = {"%s.sh"};', []),
        ('Executable = "bin/run.sh"; InputSandbox = {"bin/"};', []),
        ('Executable = "bin/run.sh";', ["--files", "bin"]),
        ("", ["--", "bin/run.sh"]),
    ],
)
def test_a_script_that_jobs_execute_is_looked_at_wherever_it_comes_from(at, accepting, home, text, words):
    (home / "bin").mkdir()
    for name in ("run.sh", "go.sh", "bin/run.sh"):
        (home / name).write_bytes(b"#!/bin/sh\r\n" if "run" in name else b"#!/bin/sh\n")
    (home / "job").write_text(text)
    done = at("submit", *words) if words[:1] == ["--"] else at("submit", *words, "job")
    assert (done.code, sent(accepting)) == (1, [])
    assert f"the first line of {'bin/' * ('bin' in text + str(words))}run.sh ends with CR LF" in done.err


def test_a_file_that_is_named_twice_is_one_and_two_of_one_name_are_refused(at, accepting, home):
    (home / "a.txt").write_text("a")
    (home / "sub").mkdir()
    (home / "sub/a.txt").write_text("another")
    (home / "j.jdl").write_text('Executable = "/bin/cat"; InputSandbox = {"./a.txt", "a.txt"};')
    (home / "sub/j.jdl").write_text((home / "j.jdl").read_text())
    assert at("submit", "j.jdl", "--files", "a.txt").code == 0
    assert list(sent(accepting)[0]["sandboxes"]) == ["a.txt"]
    done = at("submit", "sub/j.jdl", "--files", "a.txt")
    assert (done.code, "a.txt and sub/a.txt are two files of one name" in done.err) == (1, True)


@pytest.mark.parametrize("name", ["~/a.txt", "$HOME/a.txt"])
def test_a_path_of_a_shell_is_said_where_an_input_is_not_found(at, home, name):
    (home / "j.jdl").write_text(f'Executable = "/bin/cat"; InputSandbox = "{name}";')
    assert "No ~ and no variable is read in them." in at("submit", "j.jdl").err


def test_a_script_that_is_only_an_input_may_have_any_line_ends(at, accepting, home):
    (home / "run.sh").write_bytes(b"#!/bin/sh\r\n")
    (home / "job").write_text('Executable = "/bin/cat"; Arguments = "run.sh"; InputSandbox = "run.sh";')
    assert at("submit", "job").code == 0


@pytest.mark.parametrize("words", [[], ["--json"], ["--dry-run"]])
def test_an_unreachable_server_is_reported_as_by_every_command(lode, home, words):
    (home / "a.jdl").write_text('[ Executable = "/bin/true"; ]')
    result = lode("--server", "http://127.0.0.1:1", "submit", "a.jdl", *words)
    assert result.code == 5
    assert result.err.count("Is it running (lode server)? For another address: lode --server URL.") == 1
    assert (not result.out) or "lode --server URL" in result.json["errors"][0]["hint"]


def test_a_lost_answer_is_reported_once(lode, home, accepting, monkeypatch):
    fault = Unavailable("http://x does not answer (gone).", sent=True)
    monkeypatch.setattr(
        "lodesman.user.access.caller.Caller.call", lambda *_, **__: (_ for _ in ()).throw(fault)
    )
    (home / "a.jdl").write_text('[ Executable = "/bin/true"; ]')
    result = lode("--server", accepting.url, "submit", "a.jdl", "--json")
    assert (result.code, result.err.count("It may have been carried out")) == (5, 1)
    assert result.json["errors"][0]["hint"].count("It may have been carried out") == 1


def test_percent_signs_in_names_of_input_files(at, accepting, home):
    (home / "100%").write_bytes(b"x")
    (home / "a.jdl").write_text('[ Executable = "/bin/cat"; InputSandbox = "100%"; ]')
    (home / "b.jdl").write_text(
        '[ Executable = "/bin/cat"; InputSandbox = "100%%"; Arguments="%n"; Parameters = 2; ]'
    )
    assert at("submit", "a.jdl", "b.jdl").code == 0
    assert [list(body["sandboxes"]) for body in sent(accepting)] == [["100%"], ["100%"]]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ('"nothere"', "nothere does not exist"),
        ('"folder"', "is a directory"),
        ('"/dev/zero"', "/dev/zero is not a plain file. Only plain files and folders can be sent."),
        ('"data_%s.txt"', "data_1.txt does not exist"),
        ('"data_%(X)s.txt"', "data_a.txt does not exist"),
    ],
)
def test_input_files_that_cannot_travel(at, accepting, home, files, said):
    (home / "folder").mkdir()
    (home / "a.jdl").write_text(
        f'[ Executable = "x"; InputSandbox = {files}; Parameters = 2; ParameterStart = 1; '
        'Parameters.X = {"a", "b"}; Arguments = "%s %(X)s"; ]'
    )
    result = at("submit", "a.jdl")
    assert result.code == 1
    assert result.err.startswith("lode: a.jdl:1:21: InputSandbox: ")
    assert said in result.err
    assert accepting.asked == []


def test_input_files_of_each_member_are_found_and_each_content_is_sent_once(at, accepting, home):
    for name, content in (("red_0", b"one"), ("green_1", b"two"), ("blue_2", b"one"), ("all", b"all")):
        (home / name).write_bytes(content)
    accepting.state["count"] = 3
    (home / "a.jdl").write_text(
        '[ Executable = "/bin/cat"; InputSandbox = {"%(Colour)s_%n", "all"}; CPUTime = "%s"; '
        'Parameters = {1, 2, 1}; Parameters.Colour = {"red", "green", "blue"}; ]'
    )
    assert at("submit", "a.jdl").code == 0
    (body,) = sent(accepting)
    assert {name: one["sha256"] for name, one in body["sandboxes"].items()} == {
        "red_0": sha(b"one"), "green_1": sha(b"two"), "blue_2": sha(b"one"), "all": sha(b"all"),
    }  # fmt: skip
    assert len(accepting.of("POST", "/v1/sandboxes")) == 3


def test_ten_thousand_members_may_have_files_of_their_own_and_no_more(at, accepting, home):
    (home / "a.jdl").write_text('[ Executable = "x"; InputSandbox = "f%n"; Parameters = 10001; ]')
    result = at("submit", "a.jdl")
    assert (result.code, accepting.asked) == (1, [])
    assert "At most 10000 members can each have files of their own." in result.err


def test_an_upload_that_is_refused_names_the_file(at, accepting, home):
    (home / "big").write_bytes(b"x")
    (home / "a.jdl").write_text('[ Executable = "x"; InputSandbox = "big"; ]')
    accepting.refuse("POST", "/v1/sandboxes", 413, code="too-large", message="A sandbox is at most 0 bytes.")
    result = at("submit", "a.jdl")
    assert (result.code, result.err) == (1, "lode: big: A sandbox is at most 0 bytes.\n")
    assert sent(accepting) == []


def test_a_fault_is_reported_with_its_position_before_anything_is_sent(at, accepting, home):
    (home / "bad.jdl").write_text('[\n  Executable = "x";\n  CPUTime = -5;\n]')
    (home / "worse.jdl").write_text("[\n  Executable = ;\n]")
    (home / "good.jdl").write_text(HELLO)
    result = at("submit", "good.jdl", "bad.jdl", "worse.jdl", "gone.jdl")
    assert (result.code, result.out) == (1, "")
    lines = result.err.splitlines()
    assert lines[0].startswith("lode: bad.jdl:3:")
    assert "CPUTime" in lines[0]
    assert lines[1].startswith("lode: worse.jdl:2:")
    assert lines[2].startswith(
        "lode: gone.jdl: cannot be read: No such file or directory. A command stands after"
    )
    assert "line 3" not in lines[0]
    assert accepting.asked == []


def test_a_refusal_of_the_server_names_the_file_and_the_place(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    accepting.refuse(
        "POST", "/v1/jobs", 400, code="invalid-job", message="Site Atlantis is unknown (line 3, column 5).",
        hint="Give a site.", data={"attribute": "Site", "line": 3, "column": 5},
    )  # fmt: skip
    result = at("submit", "a.jdl")
    assert (result.code, result.err) == (1, "lode: a.jdl:3:5: Site Atlantis is unknown. Give a site.\n")


def test_a_refused_file_stops_all_before_anything_is_stored(at, accepting, home):
    for name in ("a.jdl", "b.jdl", "c.jdl", "d.jdl"):
        (home / name).write_text(f'[ Executable = "/{name}"; ]')
    take = accepting.routes[0][2]

    def picky(asked):
        if "b.jdl" in asked.json["text"] or "d.jdl" in asked.json["text"]:
            return 422, {"error": {"code": "impossible", "message": "The job can never run."}}
        return take(asked)

    accepting.on("POST", "/v1/jobs", picky)
    result = at("submit", "a.jdl", "b.jdl", "c.jdl", "d.jdl")
    assert (result.code, result.out) == (1, "")
    assert result.err == "lode: b.jdl: The job can never run.\nlode: d.jdl: The job can never run.\n"
    assert (len(asked_about(accepting)), sent(accepting)) == (4, [])


def test_many_files_are_asked_about_before_they_are_submitted(at, accepting, home):
    for name in ("a.jdl", "b.jdl"):
        (home / name).write_text(f'[ Executable = "{name}"; ]')
    assert at("submit", "a.jdl", "b.jdl").code == 0
    assert [one.json.get("dry_run", False) for one in accepting.of("POST", "/v1/jobs")] == [
        True,
        True,
        False,
        False,
    ]
    accepting.asked.clear()
    assert at("submit", "a.jdl").code == 0
    assert (len(asked_about(accepting)), len(sent(accepting))) == (0, 1)


def test_a_bad_token_is_reported_once(at, accepting, home):
    for name in ("a.jdl", "b.jdl"):
        (home / name).write_text(HELLO)
    accepting.refuse("POST", "/v1/jobs", 401, code="unauthorized", message="This token is unknown.")
    result = at("submit", "a.jdl", "b.jdl")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert (len(asked_about(accepting)), sent(accepting)) == (1, [])


def test_notices_and_held_jobs_go_to_standard_error(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    accepting.state.update(count=2, held=2)
    accepting.state["notices"] = [
        {"attribute": "Foo", "message": "Foo is no attribute\x1b[1m.", "line": 2, "column": 3}
    ]
    result = at("submit", "a.jdl")
    assert result.out == "12-13\n"
    assert "lode: a.jdl:2:3: warning: Foo is no attribute\\x1b[1m." in result.err
    assert "2 of 2 jobs are Held" in result.err
    assert "lode why 12" in result.err


@pytest.mark.parametrize("words", [(), ("--verbose",)])
def test_a_dry_run_shows_every_step_if_asked(at, home, monkeypatch, words):
    asked = []
    monkeypatch.setattr(
        "lodesman.user.cli.job_plans.plan_files", lambda *_given, verbose: asked.append(verbose) or 0
    )
    (home / "a.jdl").write_text('[ Executable = "/bin/true"; ]')
    assert at("submit", "--dry-run", *words, "a.jdl").code == 0
    assert asked == [bool(words)]


def test_a_dry_run_submits_and_uploads_nothing_and_prints_a_plan(at, accepting, home):
    (home / "data").write_text("x")
    (home / "a.jdl").write_text('[ Executable = "/bin/cat"; InputSandbox = "data"; ]')
    answer = {
        "count": 3,
        "group": "bio",
        "held": 1,
        "refusal": None,
        "cohorts": [],
        "more_cohorts": 0,
        "notices": [],
    }
    accepting.on("POST", "/v1/plan/job", answer)
    words = ("a.jdl", "--group", "bio", "--hold-if-impossible")
    result = at("submit", "--dry-run", *words)
    assert result.out.startswith("a.jdl: 3 jobs would be submitted, 1 of them Held, for group bio.\n")
    assert (sent(accepting), accepting.known) == ([], {})
    (asked,) = accepting.asked
    assert (asked.path, asked.json["group"], asked.json["hold_if_impossible"]) == (
        "/v1/plan/job",
        "bio",
        True,
    )
    planned = at("plan", "job", *words)
    assert (planned.code, planned.out) == (result.code, result.out) == (0, result.out)
    assert accepting.asked[-1].json == asked.json
    (home / "data").unlink()
    assert at("submit", "--dry-run", *words).code == 1
    assert len(accepting.asked) == 2


def test_json_has_everything(at, accepting, home):
    (home / "a.jdl").write_text(HELLO)
    accepting.state["count"] = 5
    found = at("submit", "a.jdl", "--json").json
    assert found == {
        "submissions": [
            {"file": "a.jdl", "count": 5, "held": 0, "submission": 3, "first": 12, "last": 16, "jobs": "12-16",
             "notices": []}
        ],
        "errors": [],
    }  # fmt: skip
    (home / "bad.jdl").write_text("[")
    result = at("submit", "bad.jdl", "--json")
    (error,) = result.json["errors"]
    assert (result.code, error["file"], error["code"]) == (1, "bad.jdl", "syntax")
    assert error["data"]["line"] == 1


def test_a_text_that_is_too_large_is_not_read_to_its_end(at, home, monkeypatch):
    monkeypatch.setattr("lodesman.languages.jobs.ARRAY_LIMITS", type("Small", (), {"text_bytes": 10}))
    (home / "a.jdl").write_text(" " * 11)
    result = at("submit", "a.jdl")
    assert result.code == 1
    assert result.err.startswith("lode: a.jdl: has more than 10 bytes.")


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"\0\0", b"", b"[", b"{", b"%", b'[ Executable = ""; ]', b"x" * 10_000]
)
def test_hostile_texts_are_errors_with_a_place(at, server, data):
    result = at("submit", "-", stdin=data)
    assert result.code == 1
    assert result.err.startswith("lode: standard input")
    assert result.err.count("\n") == 1
    assert result.err.strip().isprintable()
    assert server.asked == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_large_uploads_show_a_bar_to_people_only(monkeypatch, tmp_path):
    class Nothing(Client):
        def fetch(self, *_arguments, **_more):
            return b'{"sha256": "", "size": 0}'

    (tmp_path / "big").write_bytes(b"")
    files = {tmp_path / "big": FileBody(sha256="0" * 64, size=submit.LARGE_BYTES + 1)}
    terminal, plain = Terminal(), io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    for stream in (terminal, plain):
        monkeypatch.setattr("sys.stderr", stream)
        submit._upload(Session(_client=Nothing(["http://127.0.0.1"])), files)
    assert "uploading" in terminal.getvalue()
    assert plain.getvalue() == ""


def test_a_file_that_vanishes_is_an_error_and_no_crash(at, accepting, home, monkeypatch):
    (home / "run.sh").write_text("x")
    (home / "a.jdl").write_text('[ Executable = "run.sh"; InputSandbox = "run.sh"; ]')

    def gone(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr("lodesman.wire.client.sha256_of", gone)
    result = at("submit", "a.jdl")
    assert (result.code, result.err) == (1, "lode: run.sh: No such file or directory.\n")


def test_a_program_that_its_folder_lacks_is_refused_before_it_is_sent(at, accepting, home):
    (home / "bin").mkdir()
    (home / "bin/go.sh").write_text("#!/bin/sh\n")
    (home / "j.jdl").write_text('Executable = "bin/run.sh"; InputSandbox = {"bin/"};')
    done = at("submit", "j.jdl")
    assert (done.code, sent(accepting)) == (1, [])
    assert "the folder bin of the InputSandbox has no such file" in done.err
    (home / "bin/run.sh").write_text("#!/bin/sh\n")
    assert at("submit", "j.jdl").code == 0


def test_a_program_that_stays_behind_is_named(at, accepting, home):
    (home / "fit.sh").write_text("#!/bin/sh\n")
    (home / "j.jdl").write_text('Executable = "fit.sh";')
    done = at("submit", "j.jdl")
    assert (done.code, len(sent(accepting))) == (0, 1)
    assert (
        "j.jdl: warning: Executable is fit.sh, a command of the node; the fit.sh here is not in" in done.err
    )
    (home / "j.jdl").write_text('Executable = "fit.sh"; InputSandbox = "fit.sh";')
    assert "warning" not in at("submit", "j.jdl").err
