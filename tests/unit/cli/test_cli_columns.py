"""Each list is a table of columns: `--columns`, `--sort` and `--format` choose, order and write them."""

from __future__ import annotations

import click
import pytest

from lodesman.user.cli.columns import Column
from lodesman.user.cli.root import lode

SHAPE = {"columns", "sort", "format"}
DAY = 86_400.0


def commands(command=lode, path=()):
    """All that run something, and `usage`, which does so without a command of its own."""
    context = click.Context(lode)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def test_each_list_has_all_three_options():
    options = {" ".join(path): {option.name for option in command.params} for path, command in commands()}
    shaped = {path for path, names in options.items() if names & SHAPE}
    assert {path for path in options if path.endswith(" ls")} < shaped
    assert [path for path in shaped if not options[path] >= SHAPE] == []


LISTS = [
    pytest.param(
        ["host", "ls", "--columns", "host,pilots,state", "--sort", "-pilots"],
        "/v1/hosts",
        {"hosts": [{"host": "wn1", "pilots": 3}, {"host": "wn2", "pilots": 1_200, "text": "shut"}]},
        ["host,pilots,state", "wn2,1200,shut", "wn1,3,gets jobs"],
        id="hosts",
    ),
    pytest.param(
        ["site", "ls", "--columns", "site,running_jobs,max_running_jobs", "--sort", "max_running_jobs"],
        "/v1/sites",
        {"sites": [{"site": "North", "running_jobs": 1_500}, {"site": "South", "max_running_jobs": 9}]},
        ["site,running_jobs,max_running_jobs", "South,0,9", "North,1500,"],
        id="sites",
    ),
    pytest.param(
        ["tq", "ls", "--columns", "tq,waiting,held,cpu,memory,waits_because"],
        "/v1/task-queues",
        {"task_queues": [{"id": 7, "waiting": 2_000, "norm_cpu_seconds": 90, "memory_mb": 2_000}]},
        ["tq,waiting,held,cpu,memory,waits_because", "7,2000,0,90,2000,not judged yet"],
        id="task queues",
    ),
    pytest.param(
        ["tq", "reasons", "--columns", "reason,jobs", "--sort", "jobs"],
        "/v1/task-queues/reasons",
        {"reasons": [{"reason": "next", "detail": "d", "jobs": 2}, {"reason": "limited", "jobs": 1}]},
        ["reason,jobs", "limited,1", "next,2"],
        id="reasons",
    ),
    pytest.param(
        ["pool", "ls", "--columns", "pool,queues,refreshed"],
        "/v1/submit-pools",
        {"pools": [{"id": "req1:0123456789abcdef"}], "total": 1},
        ["pool,queues,refreshed", "req1:0123456789abcdef,,"],
        id="pools",
    ),
    pytest.param(
        ["class", "ls", "--columns", "class,owner,age"],
        "/v1/job-classes",
        {"classes": [{"job_class": "app", "variant": "large", "owner": ["ada", "bob"], "more_owners": 2}]},
        ["class,owner,age", 'app.large,"ada, bob and 2 more",'],
        id="classes",
    ),
    pytest.param(
        ["quota", "ls", "--columns", "name,rules,state"],
        "/v1/quotas",
        {"sets": [{"name": "fair", "rules": 2, "enabled": True}]},
        ["name,rules,state", "fair,2,enabled"],
        id="quota sets",
    ),
    pytest.param(
        ["quota", "resources"],
        "/v1/quotas/resources",
        {"resources": [{"name": "gpu", "shortcut": "g", "type": "INT", "consumable": "JOB", "default": "0"}]},
        ["resource,shortcut,type,used_up,default", "gpu,g,INT,per job,0"],
        id="quota resources",
    ),
    pytest.param(
        ["quota", "show", "--columns", "rule,used,jobs_behind"],
        "/v1/quotas/use",
        {"uses": [{"rule": "fair/1", "used": "1610612736", "unit": "bytes", "full": True, "jobs": 1_000}]},
        ["rule,used,jobs_behind", "fair/1,1610612736,1000"],
        id="quota uses",
    ),
    pytest.param(
        ["user", "ls", "--columns", "user,groups,disabled,remark"],
        "/v1/users",
        {"users": [{"name": "ada", "groups": ["a", "b"], "disabled_at": None, "admin": True}]},
        ["user,groups,disabled,remark", 'ada,"a, b",,administrator'],
        id="users",
    ),
    pytest.param(
        ["group", "ls", "--columns", "group,share,in_the_files,when,until"],
        "/v1/groups",
        {"groups": [{"group": "physics", "share": 2.5, "set_at": DAY}]},
        ["group,share,in_the_files,when,until", "physics,2.5,,1970-01-02T00:00:00Z,"],
        id="groups",
    ),
    pytest.param(
        ["token", "ls", "--columns", "hash,of,ends_in,ends"],
        "/v1/tokens",
        {"tokens": [{"hash": "0123456789abcdef", "kind": "site", "account": "North", "expires_at": None}]},
        ["hash,of,ends_in,ends", "0123456789abcdef,site North,,"],
        id="tokens",
    ),
    pytest.param(
        ["audit", "--columns", "when,what,times"],
        "/v1/audit",
        {"entries": [{"at": DAY, "subject": "ada", "count": 1_000}]},
        ["when,what,times", "1970-01-02T00:00:00Z,ada,1000"],
        id="audit",
    ),
    pytest.param(
        ["events", "5", "--utc", "--columns", "at,event,details"],
        "/v1/jobs/5",
        {"events": [{"at": DAY, "event": "Done", "attempt": 1}, {"at": DAY, "event": "Waiting"}]},
        ["at,event,details", "1970-01-02T00:00:00Z,Done,attempt=1", "1970-01-02T00:00:00Z,Waiting,"],
        id="events",
    ),
    pytest.param(
        ["usage", "--columns", "name,jobs,wall_hours,cpu_efficiency", "--sort", "-jobs"],
        "/v1/usage/days",
        {
            "by": "group",
            "rows": [{"name": "a", "jobs": 1}, {"name": "b", "jobs": 2, "wall_seconds": 5_400.0}],
        },
        ["name,jobs,wall_hours,cpu_efficiency", "b,2,1.500000,", "a,1,0.000000,"],
        id="usage",
    ),
    pytest.param(
        ["usage", "--pilots", "--columns", "name,used"],
        "/v1/usage/pilots",
        {"by": "site", "rows": [{"name": "North", "held_core_seconds": 10.0, "used_core_seconds": 5.0}]},
        ["name,used", "North,0.500000"],
        id="usage of pilots",
    ),
]


@pytest.mark.parametrize(("words", "path", "answer", "lines"), LISTS)
def test_a_list_as_csv(at, server, words, path, answer, lines):
    server.on("GET", path, answer)
    result = at(*words, "--format", "csv")
    assert (result.code, result.out.splitlines()) == (0, lines)


@pytest.mark.parametrize("words", [param.values[0] for param in LISTS], ids=[param.id for param in LISTS])
def test_unknown_columns_and_formats_are_refused_before_the_server_is_asked(at, server, words):
    command = words[: words.index("--columns")] if "--columns" in words else words
    for option in (["--columns", "odd"], ["--sort", "-odd"], ["--format", "{odd}"], ["--format", "xml"]):
        result = at(*command, *option)
        assert (result.code, "There are " in result.err or "none of table" in result.err) == (2, True)
    assert server.asked == []


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("host ls", "{host} {state}"),
        ("quota ls", "{name} {state}"),
        ("pilot ls", "{pilot} {state}"),
        ("tq ls", "{tq} {waiting}"),
        ("user ls", "{user} {vo}"),
    ],
)
def test_the_example_of_a_template_is_one_of_this_list(at, command, example):
    """In the help, and in the words about a wrong format."""
    assert f"'{example}'" in " ".join(at(*command.split(), "--help").out.split())
    assert f"no template as '{example}'." in " ".join(at(*command.split(), "--format", "wrong").err.split())


def test_where_the_columns_depend_on_what_is_listed_the_help_gives_no_example(at):
    assert "or a template with columns in braces" in " ".join(at("status", "--help").out.split())
    assert "no template as '{submission} {jobs}'." in at("status", "--format", "wrong").err


def test_sums_stand_only_below_tables(at, server):
    server.on(
        "GET", "/v1/usage/days", {"by": "group", "rows": [{"name": "b", "jobs": 1}, {"name": "a", "jobs": 2}]}
    )
    table = at("usage", "--columns", "name,jobs", "--sort", "name")
    assert [line.split() for line in table.out.splitlines()] == [
        ["GROUP", "JOBS"],
        ["a", "2"],
        ["b", "1"],
        ["all", "3"],
    ]
    assert at("usage", "--format", "{name}").out == "b\na\n"


def test_a_span_for_programs_has_no_digits_below_a_millisecond():
    spans: Column[float] = Column("wall", "span", lambda seconds: seconds)
    words = [spans.word(seconds, utc=False) for seconds in (30.0, 12.345678901234567, 0.0004, 86_400.25)]
    assert words == ["30", "12.346", "0", "86400.25"]
