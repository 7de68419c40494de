"""`lode usage`: tables, CSV and JSON of what jobs used, and days as words."""

import csv
import io

DAY = 86_400


def used(name, **changes):
    return {
        "name": name, "vo": "lab", "jobs": 500, "attempts": 503, "failures": 13, "wall_seconds": 36_000.0,
        "core_seconds": 7_200_000.0, "cpu_seconds": 6_480_000.0, "cpu_efficiency": 0.9, "wasted_core_seconds": 9_000.0,
        "waste": {"memory-limit": 5_400.0, "exit": 3_600.0}, **changes,
    }  # fmt: skip


def answer(*rows, by="group"):
    return {"by": by, "since": 20_000 * DAY, "until": 20_007 * DAY, "rows": list(rows)}


IDLE = used(
    "bio", jobs=1, attempts=1, failures=0, wall_seconds=1.8, core_seconds=1.8, cpu_seconds=0.0, cpu_efficiency=None,
    wasted_core_seconds=0.0, waste={},
)  # fmt: skip


def test_a_table_with_a_row_for_all(at, server):
    server.on("GET", "/v1/usage/days", answer(used("physics"), IDLE))
    found = at("usage")
    lines = [line.split() for line in found.out.splitlines()]
    assert lines[0] == [
        "GROUP", "JOBS", "FAILURES", "WALL", "H", "CORE", "H", "CPU", "WASTED", "H", "WASTED", "BY",
    ]  # fmt: skip
    assert [
        "physics",
        "500",
        "13",
        "10",
        "2,000",
        "90.0",
        "%",
        "2.5",
        "memory-limit",
        "1.5",
        "h,",
        "exit",
        "1",
        "h",
    ] in lines
    assert ["bio", "1", "0", "0.001", "0.001", "-", "0", "-"] in lines
    assert lines[-1][:8] == ["all", "501", "13", "10", "2,000", "90.0", "%", "2.5"]
    assert "from 2024-10-04 to 2024-10-10 (UTC)" in found.err
    assert server.asked[-1].query == {}


def test_vos_are_shown_where_there_are_several_and_unnamed_users_are_others(at, server):
    rows = (used("ann"), used("", vo="lab"), used("olaf", vo="other"))
    server.on("GET", "/v1/usage/days", answer(*rows, by="user"))
    lines = [line.split()[:2] for line in at("usage", "--by", "user").out.splitlines()]
    assert lines == [["USER", "VO"], ["ann", "lab"], ["others", "lab"], ["olaf", "other"], ["all", "-"]]
    assert server.asked[-1].query == {"by": "user"}


def test_jobs_without_a_class_and_of_an_unknown_one_are_named(at, server):
    server.on("GET", "/v1/usage/days", answer(used("app.large"), used(""), used("unknown"), by="class"))
    lines = at("usage", "--by", "class").out.splitlines()
    assert [line.split("   ")[0].strip() for line in lines] == [
        "CLASS",
        "app.large",
        "no class",
        "unknown",
        "all",
    ]
    assert server.asked[-1].query == {"by": "class"}


def test_job_groups_are_named_and_what_is_of_none_of_others_or_not_known(at, server):
    rows = used("prod7"), used(""), used("", others=True), used("(unknown)")
    server.on("GET", "/v1/usage/days", answer(*rows, by="job-group"))
    lines = at("usage", "--by", "job-group").out.splitlines()
    assert [line.split("   ")[0].split("  ")[0].strip() for line in lines] == [
        "JOB-GROUP",
        "prod7",
        "no JobGroup",
        "others",
        "(unknown)",
        "all",
    ]
    assert server.asked[-1].query == {"by": "job-group"}


def test_many_causes_are_cut(at, server):
    many = dict.fromkeys(("exit", "signal", "input", "killed", "other"), 3_600.0)
    server.on("GET", "/v1/usage/days", answer(used("physics", waste=many)))
    assert at("usage").out.splitlines()[-1].endswith("exit 1 h, signal 1 h, input 1 h, 2 more")


def test_csv_for_spreadsheets(at, server):
    server.on("GET", "/v1/usage/days", answer(used("physics"), IDLE))
    first, second = csv.DictReader(io.StringIO(at("usage", "--csv").out))
    assert first == {
        "name": "physics", "vo": "lab", "jobs": "500", "attempts": "503", "failures": "13", "wall_hours": "10.000000",
        "core_hours": "2000.000000", "cpu_hours": "1800.000000",
        "cpu_efficiency": "0.900000", "wasted_core_hours": "2.500000",
        "waste": "memory-limit=1.500000;exit=1.000000",
    }  # fmt: skip
    assert (second["cpu_efficiency"], second["waste"]) == ("", "")


def test_json_is_the_answer(at, server):
    given = answer(used("physics"))
    server.on("GET", "/v1/usage/days", given)
    assert at("usage", "--json").json == given
    both = at("usage", "--csv", "--json")
    assert (both.code, "--csv and --json are two forms: give one of them." in both.err) == (2, True)


def test_days_are_sent(at, server):
    server.on("GET", "/v1/usage/days", answer())
    at("usage", "--by", "vo", "--since", "2024-10-04", "--until", "2024-10-05")
    assert server.asked[-1].query == {"by": "vo", "since": str(20_000 * DAY), "until": str(20_001 * DAY)}
    at("usage", "--since", "1970-01-01", "--until", "99999d")
    assert server.asked[-1].query == {"since": "1", "until": "1"}  # 0 is the usual time
    wrong = at(
        "usage",
        "--since",
        "soon",
    )
    assert wrong.code == 2
    assert "is no time; write 2h30m or 7d (ago)" in wrong.err


def test_days_without_attempts_are_said(at, server):
    server.on("GET", "/v1/usage/days", answer())
    found = at("usage")
    assert (found.code, found.out) == (0, "")
    assert found.err == "lode: No attempt ended from 2024-10-04 to 2024-10-10 (UTC).\n"


# --- of pilots


def held(name, **changes):
    return {
        "name": name, "vo": "", "pilots": 1_210, "live": 14, "held_core_seconds": 360_000.0, "used_core_seconds": 342_000.0,
        "idle_core_seconds": 18_000.0, "unknown_starts": 0, "unknown_ends": 0, **changes,
    }  # fmt: skip


def hours(*rows, by="site", purged=0.0):
    return {"by": by, "since": 20_000 * DAY, "until": 20_007 * DAY, "purged": purged, "rows": list(rows)}


def test_hours_of_pilots_with_what_is_not_known(at, server):
    none = held(
        "South", pilots=1, live=0, held_core_seconds=0.0, used_core_seconds=0.0, idle_core_seconds=0.0
    )
    answer = hours(held("North", unknown_ends=2), none | {"unknown_starts": 1}, purged=20_001 * DAY + 60.0)
    server.on("GET", "/v1/usage/pilots", answer)
    found = at("usage", "--pilots")
    assert [line.split() for line in found.out.splitlines()] == [
        ["SITE", "PILOTS", "LIVE", "HELD", "CORE", "H", "USED", "CORE", "H", "IDLE", "CORE", "H", "USED"],
        ["North", "1,210", "14", "100", "95", "5", "95.0", "%"],
        ["South", "1", "0", "0", "0", "0", "-"],
        ["all", "1,211", "14", "100", "95", "5", "95.0", "%"],
    ]
    assert "Of 2 pilots the end is not known" in found.err
    assert "1 pilot more ended, never seen to run" in found.err
    assert "ended before 2024-10-05T00:01" in found.err.replace(" 00:01", "T00:01")
    assert server.asked[-1].query == {}
    assert at("usage", "--pilots", "--json").json == answer


def test_hours_of_pilots_as_csv_and_by_other_columns(at, server):
    server.on("GET", "/v1/usage/pilots", hours(held("", vo="lab"), held("bio", vo="lab"), by="group"))
    first, _ = csv.DictReader(io.StringIO(at("usage", "--pilots", "--by", "group", "--csv").out))
    assert first == {
        "name": "", "vo": "lab", "pilots": "1210", "live": "14", "held_core_hours": "100.000000",
        "used_core_hours": "95.000000", "idle_core_hours": "5.000000", "unknown_starts": "0", "unknown_ends": "0",
    }  # fmt: skip
    assert server.asked[-1].query == {"by": "group"}
    assert at("usage", "--pilots", "--by", "group").out.splitlines()[1].startswith("all groups ")
    assert (at("usage", "--pilots", "--by", "user").code, at("usage", "--by", "queue").code) == (2, 2)


def test_quiet_days_of_pilots_are_said(at, server):
    server.on("GET", "/v1/usage/pilots", hours())
    found = at("usage", "--pilots")
    assert (found.out, found.err) == (
        "",
        "lode: No pilot ran from 2024-10-04 to 2024-10-10 (UTC), up to now.\n",
    )
