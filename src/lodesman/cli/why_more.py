"""What `lode why` tells below the table: of pilots, of CE queues, and of a job in one CE queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lodesman.cli.session import Row
from lodesman.cli.tables import Cell, Column, state
from lodesman.cli.words import counted, span

LATELY = (
    Column(title="pilot", right=True),
    Column(title="state"),
    Column(title="sent", right=True),
    Column(title="jobs", right=True),
    Column(title="remark"),
)


def smallest_changes(survey: Mapping[str, Any] | None) -> Iterator[str]:
    """What a pilot or queue would have to be so that waiting jobs fit it."""
    nearest = (survey or {}).get("nearest") or []
    if not nearest:
        return
    yield ""
    yield "Suggestions:"
    for one in nearest:
        example = one["example"]
        jobs = f"{counted(one['task_queues'], 'task queue')}, {counted(one['jobs'], 'job')}"
        whose = f"{example['task_queue']} of {example['owner']} ({example['group']})"
        yield f"  {one['text']}: {jobs}, for instance task queue {whose}"
        for step in one["steps"]:
            if len(step["options"]) > 1:
                options = ", ".join(f"{two['value']} ({two['task_queues']:,})" for two in step["options"])
                yield f"    {step['criterion']}: {options}"


def in_queue(found: Mapping[str, Any]) -> Iterator[str]:
    """What one queue has against a job."""
    yield ""
    where = "/".join(found[part] for part in ("site", "ce", "queue"))
    yield f"Queue {where}: {'could run it' if found['eligible'] else 'cannot run it'}."
    yield from (f"  {reason}" for reason in found["reasons"])
    if found["room"] is not None:
        gate = f" ({found['gate']})" if found["gate"] else ""
        yield f"  free capacity for {counted(found['room'], 'pilot')}{gate}"


def lately(rows: list[Row]) -> list[list[Cell]]:
    """The last pilots sent to a queue, for a table of LATELY."""
    return [
        [
            str(row["id"]),
            state(row["state"]),
            f"{span(row['sent_seconds_ago'])} ago",
            str(row["jobs_done"]),
            row["reason"] or ("" if row["joined"] or row["ended_seconds_ago"] is None else "never joined"),
        ]
        for row in rows
    ]
