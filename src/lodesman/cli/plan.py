"""`lode plan`: dry runs of jobs, of other resources and of other shares. Nothing is stored."""

from __future__ import annotations

import click

from lodesman.cli.plan_job import plan_job
from lodesman.cli.plan_resources import plan_resources
from lodesman.cli.plan_share import plan_share


@click.group()
def plan() -> None:
    """Tell what would happen to jobs, or through other resources or shares.

    Worked out by the server on its live state; nothing is stored.
    """


for _command in (plan_job, plan_resources, plan_share):
    plan.add_command(_command)

COMMANDS = (plan,)
