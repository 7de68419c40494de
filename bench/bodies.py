"""Bodies of submissions, encoded before anything is measured. Pure."""

from __future__ import annotations

import json
from typing import Any

VARIETIES = 50  # task queues among the jobs of a batch


def job(number: int) -> dict[str, Any]:
    """One of many distinct jobs: arguments, name and environment are its own; its task queue is one of 50."""
    kind = number % VARIETIES
    return {
        "JobName": f"simulate-{number}",
        "Executable": "/usr/bin/simulate",
        "Arguments": ["--seed", str(number), "--events", "1000"],
        "StdOutput": "std.out",
        "StdError": "std.err",
        "OutputSandbox": ["std.out", "std.err", f"events-{number}.root"],
        "Environment": {"RUN": str(number)},
        "CPUTime": 3600 * (1 + kind),
        "Site": [f"site{kind:04}", f"site{kind + 1:04}"],
    }


def jdl(number: int) -> str:
    """The same job as a text in JDL."""
    one = job(number)
    lists = {
        name: "{" + ", ".join(f'"{item}"' for item in one[name]) + "}" for name in ("OutputSandbox", "Site")
    }
    return (
        f'[\n  JobName = "{one["JobName"]}";\n  Executable = "{one["Executable"]}";\n'
        f'  Arguments = "{" ".join(one["Arguments"])}";\n  StdOutput = "std.out";\n  StdError = "std.err";\n'
        f'  OutputSandbox = {lists["OutputSandbox"]};\n  Environment = {{"RUN={number}"}};\n'
        f"  CPUTime = {one['CPUTime']};\n  Site = {lists['Site']};\n]\n"
    )


def json_batch(first: int, count: int) -> bytes:
    """A batch of distinct jobs as JSON records."""
    return json.dumps({"jobs": [job(first + k) for k in range(count)]}, separators=(",", ":")).encode()


def jdl_batch(first: int, count: int) -> bytes:
    """A batch of distinct JDL texts."""
    return json.dumps(
        {"texts": [jdl(first + k) for k in range(count)], "form": "jdl"}, separators=(",", ":")
    ).encode()


def values_record(count: int) -> bytes:
    """One description with a value for each of its members, as a JSON record."""
    values = [f"run-{n:07}" for n in range(count)]
    record = {"Executable": "/usr/bin/simulate", "Arguments": "--input %s", "Parameters": values}
    return json.dumps({"jobs": [record]}, separators=(",", ":")).encode()


def values_jdl(count: int) -> bytes:
    """The same in JDL."""
    values = ",".join(f'"run-{n:07}"' for n in range(count))
    text = f'[ Executable = "/usr/bin/simulate"; Arguments = "--input %s"; Parameters = {{{values}}}; ]'
    return json.dumps({"text": text, "form": "jdl"}, separators=(",", ":")).encode()


def array(members: int) -> bytes:
    """One description of `members` equal members, which differ only in their number."""
    record: dict[str, Any] = {"Executable": "/usr/bin/simulate", "Arguments": ["--events", "1000"]}
    record |= {"Parameters": members} if members > 1 else {}
    return json.dumps({"jobs": [record]}, separators=(",", ":")).encode()
