"""Submissions before the server's verifier (JSV): what it changes, refuses, and what becomes of faults of its script."""

from __future__ import annotations

import pytest
from tests.api.test_api_projects import use as use_projects
from tests.kits.jsv_kit import ACCOUNT, public_folder, shell, write_script

from lodesman.server.reads import verifying
from lodesman.server.writer.job_classes import load_classes
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.jsv import JsvSection

APP = "jcname app\nCMDNAME /bin/echo\nN {~}greeting\nl_hard {~+}h_rt=3600,h_cpu=500\nP physics\n"
BIG = "jcname big\nCMDNAME /bin/echo\nN {~}large\nl_hard {~+}h_rt=7200,h_cpu=500\n"


@pytest.fixture
def server(house):
    """Configure a script, the body of its `jsv_on_verify`; the script's path is returned."""
    with public_folder() as folder:

        def configure(verify: str, name: str = "check", **more) -> str:
            folder.chmod(0o777)  # for what scripts write
            path = write_script(folder / name, shell(verify)).path
            url = f"script:{ACCOUNT}{'@' if ACCOUNT else ''}{path}"
            house.core.jsv = house.side.jsv = JsvSection(server=url, **{"time_out_seconds": 2.0, **more})
            return path

        yield configure


@pytest.fixture
def classes(house):
    for text in (APP, BIG):
        assert house.call("POST", "/v1/job-classes", {"text": text}, token="admin").status == 200


def origins(house, job: int) -> dict[str, str]:
    return dict(house.get(f"/v1/jobs/{job}/description")["resolution"]["origins"])


def spec(house):
    (job,) = house.claim(house.pilot())
    return job["spec"]


def refusal(answer) -> str:
    assert answer.status == 400, answer.body
    return str(answer.json["error"]["message"])


def test_a_script_corrects_and_the_origin_names_it(house, server):
    path = server("jsv_set_param N mended; jsv_sub_add_param l_hard h_rt 60; jsv_correct")
    job = house.submitted({"JobName": "mine", "Memory": 100})
    assert origins(house, job) == {
        "JobName": f"server JSV {path}",
        "WallTime": f"server JSV {path}",
        "Memory": "command line",
        "CPUTime": "command line",
        "Executable": "command line",
    }
    found = spec(house)
    assert (found["name"], found["memory_mb"]) == ("mended", 100)
    # What the user wrote is kept.
    assert '"mine"' in house.get(f"/v1/jobs/{job}/description")["text"]


def test_a_script_sees_what_the_class_made_of_the_job(house, server, classes):
    server(
        'jsv_reject "$(jsv_get_param jc) $(jsv_get_param CMDNAME) $(jsv_sub_get_param l_hard h_rt) '
        "$(jsv_get_param USER) $(jsv_get_param GROUP) $(jsv_get_param CONTEXT) $(jsv_get_param CLIENT) "
        '$(jsv_get_env A) $(jsv_get_param t_max)"'
    )
    record = {"JobClass": "app", "Environment": {"A": "x y"}, "Parameters": 7}
    answer = house.call("POST", "/v1/jobs", {"jobs": [record]}, token="ann")
    assert refusal(answer) == "Unable to run job: app /bin/echo 3600 ann physics server qmaster x y 7."


def test_a_script_sees_system_defaults_and_the_edits_of_the_user(house, server, classes):
    section = JobClassSection(defaults={"P": "physics", "l_hard": "h_vmem=1G"})
    house.side.classes = lambda db: load_classes(db, house.side.policy.vocabulary, section)
    server('jsv_reject "$(jsv_get_param P) $(jsv_get_param l_hard) $(jsv_is_param N)"')
    edits = [
        {"verb": "adds", "attribute": "l_hard", "key": "h_rt", "value": "60"},
        {"verb": "clearp", "attribute": "N"},
    ]
    answer = house.submit({"Consumables": "ka=1", "JobName": "n"}, edits=edits)
    assert refusal(answer) == "Unable to run job: physics h_vmem=1G,h_cpu=500,ka=1,h_rt=60 false."


AMOUNTS = (
    {"Memory": 1800, "Consumables": ["vf=1G"]},
    {"Memory": 1000, "Consumables": ["vf=4G", "mf=3G"]},
    {"Memory": 1800, "Consumables": ["h_vmem=1G"]},
    {"Consumables": ["h_vmem=500M", "h_rt=60", "s=2"]},
    {"Consumables": ["mem_free=1G"], "NumberOfProcessors": 2},
)


@pytest.mark.parametrize("record", AMOUNTS, ids=str)
def test_an_idle_script_and_an_empty_class_leave_a_job_what_it_asks_for(house, server, record):
    def asked(**more):
        house.submitted({**record, **more})
        found = [one for one in house.get("/v1/task-queues")["task_queues"] if one["waiting"]]
        (job,) = house.claim(house.pilot())
        keys = {name: found[0][name] for name in ("memory_mb", "cores", "consumables", "norm_cpu_seconds")}
        return keys, {**job["spec"], "job_class": "", "variant": ""}

    assert house.call("POST", "/v1/job-classes", {"text": "jcname empty\n"}, token="admin").status == 200
    plain = asked()
    assert (plain[0]["memory_mb"] > 0) == ("Memory" in record or "h_rt=60" in record["Consumables"])
    assert asked(JobClass="empty") == plain
    server("jsv_accept")
    assert asked() == plain
    assert asked(JobClass="empty") == plain


def test_a_rejected_submission_takes_no_number(house, server):
    server('case "$(jsv_get_param N)" in bad) jsv_reject no;; *) jsv_accept;; esac')
    assert house.submitted({"JobName": "good"}) == 1
    assert refusal(house.submit({"JobName": "bad"})) == "Unable to run job: no."
    assert house.submitted({"JobName": "good"}) == 2


def test_a_script_may_hold_a_job(house, server):
    path = server("jsv_set_param h u; jsv_correct")
    found = house.get(f"/v1/jobs/{house.submitted()}")
    assert (found["state"], found["reason"]) == ("Held", f"submitted with h u (server JSV {path})")


def test_a_script_may_take_a_hold_away(house, server):
    server("jsv_del_param h; jsv_correct")
    answer = house.submit({}, hold=True).json
    assert [one["attribute"] for one in answer["notices"]] == ["Held"]
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


@pytest.mark.parametrize("job", ["/* */ JobName = 1;", "Executable"])
def test_a_text_that_cannot_be_read_is_refused_at_its_place(house, server, job):
    server("jsv_accept")
    answer = house.call("POST", "/v1/jobs", {"text": f'Executable = "x";\n{job}', "form": "jdl"}, token="ann")
    assert refusal(answer)
    assert answer.json["error"]["data"]["line"] == 2


def test_what_a_class_does_not_allow_is_refused_also_if_a_script_wrote_it(house, server, classes):
    path = server("jsv_set_param P other; jsv_correct")
    answer = house.call("POST", "/v1/jobs", {"jobs": [{"JobClass": "app"}]}, token="ann")
    assert "P may not be changed" in refusal(answer)
    (breach,) = answer.json["error"]["data"]["violations"]
    assert breach["origin"] == f"server JSV {path}"


def test_a_script_changes_the_class_and_all_begins_again(house, server, classes):
    path = server('if [ "$(jsv_get_param jc)" = app ]; then jsv_set_param jc big; fi; jsv_correct')
    assert house.call("POST", "/v1/jobs", {"jobs": [{"JobClass": "app"}]}, token="ann").status == 200
    found = house.get("/v1/jobs/1/description")["resolution"]
    assert (found["job_class"], found["origins"]["JobClass"]) == ("big.default", f"server JSV {path}")
    assert found["origins"]["WallTime"] == "class"
    assert spec(house)["name"] == "large"


def test_a_script_that_goes_to_and_fro_between_classes_is_refused_with_its_chain(house, server, classes):
    path = server(
        'case "$(jsv_get_param jc)" in app) jsv_set_param jc big;; *) jsv_set_param jc app;; esac; jsv_correct'
    )
    answer = house.call("POST", "/v1/jobs", {"jobs": [{"JobClass": "app"}]}, token="ann")
    assert "app.default -> big.default -> app.default" in refusal(answer)
    data = answer.json["error"]["data"]
    assert (data["chain"], data["jsv"]) == (["app.default", "big.default", "app.default"], path)
    assert house.counted() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verify", "words"),
    [
        ('jsv_reject "not today"', "not today"),
        ("jsv_reject", "JSV rejected job"),
        ("jsv_reject_wait", "JSV temporarily rejected job"),
        ("kill -9 $$", "got no response from JSV script"),
        ("echo broken >&2; jsv_accept", "JSV stderr: broken"),
        ("echo NONSENSE", 'unknown command from JSV: "NONSENSE"'),
        ("jsv_set_param USER root; jsv_correct", 'read-only parameter "USER"'),
        ("jsv_set_param p high; jsv_correct", 'JSV tries to set "p"'),
        ("jsv_sub_add_param l_hard h_rt soon; jsv_correct", "WallTime is the text 'soon'"),
        ("jsv_set_param N $(printf %01048576d 7); jsv_correct", "JobName"),
    ],
)
def test_one_refusal_that_names_script_and_cause_and_the_next_job_goes_on(house, server, verify, words):
    path = server(f'if [ "$(jsv_get_param N)" = bad ]; then {verify}; else jsv_accept; fi')
    house.submitted({"JobName": "good"})
    answer = house.submit({"JobName": "bad"})
    assert words in refusal(answer)
    assert path in answer.json["error"]["message"] + answer.json["error"].get("hint", "")
    house.submitted({"JobName": "good"})
    assert house.counted() == 2


@pytest.mark.slow
def test_a_script_that_hangs_is_refused_after_its_second_time_out(house, server):
    server('if [ "$(jsv_get_param N)" = bad ]; then sleep 100; else jsv_accept; fi', time_out_seconds=0.2)
    assert "got no response from JSV script" in refusal(house.submit({"JobName": "bad"}))
    assert house.submit({"JobName": "good"}).status == 200


def test_a_newline_in_a_value_is_refused_and_named(house, server):
    path = server("jsv_accept")
    answer = house.submit({"JobName": "good", "Note": "two\nlines"})
    assert "has a newline" in refusal(answer)
    assert path in refusal(answer)


@pytest.mark.slow
def test_a_changed_script_counts_for_the_next_job(house, server):
    server("jsv_accept")
    house.submitted()
    path = server("jsv_reject later")
    assert refusal(house.submit()) == "Unable to run job: later."
    server("jsv_set_param N third; jsv_correct")
    assert origins(house, house.submitted())["JobName"] == f"server JSV {path}"


def test_a_script_that_is_gone_lets_nothing_past(house, server):
    server("jsv_accept")
    section = JsvSection(server=f"script:{ACCOUNT}{'@' if ACCOUNT else ''}/no/such/script")
    house.core.jsv = section
    assert '"/no/such/script" is either not a file or not executable' in refusal(house.submit())
    assert house.counted() == 0


def test_another_script_is_asked_as_soon_as_it_is_configured(house, server):
    server("jsv_reject first", name="first")
    assert "first" in refusal(house.submit())
    server("jsv_reject second", name="second")
    assert "second" in refusal(house.submit())
    house.core.jsv = JsvSection()
    assert house.submit().status == 200


def test_of_a_batch_each_job_is_asked_for_and_one_bad_job_refuses_all(house, server):
    server(
        'case "$(jsv_get_param N)" in bad) jsv_reject no;; *) jsv_set_param N "$(jsv_get_param N)x"; jsv_correct;; esac'
    )
    answer = house.submit({"JobName": "a"}, {"JobName": "bad"})
    assert refusal(answer) == "Job 1 of the batch: Unable to run job: no."
    assert answer.json["error"]["data"]["job"] == 1
    house.submitted({"JobName": "a"}, {"JobName": "b"})
    assert [job["spec"]["name"] for job in house.claim(house.pilot(), 2)] == ["ax", "bx"]
    text = 'Executable = "/bin/true"; JobName = "bad";'
    answer = house.call("POST", "/v1/jobs", {"texts": ['Executable = "/bin/true";', text]}, token="ann")
    assert answer.json["error"]["data"]["job"] == 1


def test_an_array_is_one_dialogue(house, server):
    server("""n=$(cat "$0.count" 2>/dev/null || echo 0); echo $((n+1)) > "$0.count"; jsv_accept""")
    house.submitted({"Parameters": 100_000, "Arguments": "%j"})
    folder = house.core.jsv.server.rpartition("@")[2].removeprefix("script:")
    with open(f"{folder}.count", encoding="ascii") as file:  # noqa: PTH123
        assert file.read() == "1\n"


def test_a_trial_and_a_plan_ask_the_script_too(house, server):
    server(
        'case "$(jsv_get_param N)" in bad) jsv_reject no;; *) jsv_sub_add_param l_hard h_vmem 9G; jsv_correct;; esac'
    )
    assert refusal(house.submit({"JobName": "bad"}, dry_run=True)) == "Unable to run job: no."
    plan = {"jobs": [{"Executable": "/bin/true", "JobName": "bad"}]}
    assert refusal(house.call("POST", "/v1/plan/job", plan, token="ann")) == "Unable to run job: no."
    answer = house.call("POST", "/v1/plan/job", {"jobs": [{"Executable": "/bin/true"}]}, token="ann")
    assert answer.json["refusal"]["code"] == "impossible"
    assert house.counted() == 0


def test_a_disabled_class_is_disabled_before_the_script_too(house, server, classes):
    server("jsv_accept")
    body = {"jobs": [{"JobClass": "app"}]}
    assert house.call("POST", "/v1/jobs", body, token="ann").status == 200
    switch = {"names": ["app"], "switch": "disable"}
    assert house.call("POST", "/v1/job-classes/switch", switch, token="admin").status == 200
    assert "disabled" in refusal(house.call("POST", "/v1/jobs", body, token="ann"))


def test_no_process_that_asks_is_no_submission(house, server):
    server("jsv_accept")
    house.core.verify = None
    assert (house.submit().status, house.counted()) == (503, 0)


def test_what_the_user_says_of_own_scripts_is_shown_among_the_origins(house, server):
    house.submitted(
        {"JobName": "n", "WallTime": 60, "Memory": 5},
        client_jsv={"N": "/home/ann/a.jsv", "l_hard h_rt": "/home/ann/b.jsv"},
    )
    found = origins(house, 1)
    assert (found["JobName"], found["WallTime"]) == (
        "client JSV /home/ann/a.jsv",
        "client JSV /home/ann/b.jsv",
    )
    assert (found["Memory"], found["Executable"]) == ("command line", "command line")


def change(house, **attributes):
    return house.call("POST", "/v1/jobs/change", {"ranges": [[1, 1]], "attributes": attributes}, token="ann")


def test_a_verified_job_may_be_changed_only_as_far_as_the_configuration_says(house, server):
    """The script does not verify changes."""
    server("jsv_accept")
    house.submitted({"WallTime": 60})
    answer = change(house, WallTime=90, JobName="other")
    assert answer.status == 403
    assert "does not allow: l_hard" in answer.json["error"]["message"]
    assert change(house, JobName="other").json["changed"] == 1
    server("jsv_accept", allowed_modifications="l_hard")
    assert change(house, WallTime=90).json["changed"] == 1
    assert change(house, JobName="third").status == 403
    server("jsv_accept", allowed_modifications="none")
    assert change(house, JobName="third").status == 403
    (job,) = house.claim(house.pilot())
    assert (job["spec"]["name"], job["limits"]["wall_seconds"]) == ("other", 90)


def test_who_has_too_many_that_wait_for_the_script_is_told_to_wait(house, server, monkeypatch):
    server("jsv_accept")
    monkeypatch.setattr(verifying, "_MOST_OF_ONE", 0)
    records = {"jobs": [{"Executable": "/bin/true", "CPUTime": 500}]}
    for path, body in (
        ("/v1/jobs", records),
        ("/v1/jobs", {**records, "dry_run": True}),
        ("/v1/plan/job", records),
    ):
        answer = house.call("POST", path, body, token="ann")
        assert (answer.status, answer.code) == (429, "too-often")
        assert "wait for the JSV of the server" in answer.json["error"]["message"]


def test_a_project_from_the_script_is_one_that_the_user_may_have(house, server):
    path = server("jsv_set_param P nosuch; jsv_correct")
    use_projects(house)
    error = house.submit({}).json["error"]
    assert error["message"] == "JobGroup: there is no project 'nosuch'."
    assert error["hint"].endswith(f"It is from the server JSV {path}.")
