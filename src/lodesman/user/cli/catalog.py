"""The commands of `lode` by what they are for: what its help says of each without loading it, and where each is."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple, cast

import click

# Where Python has another use for the name of a command.
_NAMES = {"class": "job_class", "import": "import_"}


class CommandEntry(NamedTuple):
    """A command in the help of `lode`."""

    module: str  # of user/cli/commands
    summary: str  # the first sentence of its own help, cut where a line ends

    def load(self, name: str) -> click.Command:
        """The command, with its options."""
        module = import_module(f"lodesman.user.cli.commands.{self.module}")
        return cast("click.Command", getattr(module, _NAMES.get(name, name)))


SECTIONS = {
    "Jobs": {
        "submit": CommandEntry("submit", "Submit jobs; prints their ids."),
        "plan": CommandEntry(
            "plan", "Show what would happen to jobs, or through other resources, shares or ads of sites."
        ),
        "status": CommandEntry(
            "status", "Show your submissions, the newest first, each with the states of its jobs."
        ),
        "why": CommandEntry(
            "why", "Explain why a job waits, why a pilot got nothing, or why no pilots are sent to a queue."
        ),
        "output": CommandEntry("output", "Fetch what jobs wrote, into DIR/JOB."),
        "logs": CommandEntry("wait", "Show the last 64 kB that a job wrote, live while it runs."),
        "show": CommandEntry("jobs", "Show all that is known of a job, with its attempts."),
        "events": CommandEntry("jobs", "Show what happened to a job, oldest first."),
        "kill": CommandEntry("actions", "Kill jobs, waiting or running."),
        "hold": CommandEntry("actions", "Hold waiting jobs until they are released."),
        "release": CommandEntry("actions", "Let held jobs wait for a pilot again."),
        "change": CommandEntry("actions", "Change jobs that wait or are held."),
        "wait": CommandEntry("wait", "Wait until jobs have ended."),
        "reschedule": CommandEntry(
            "actions", "Send failed, killed or running jobs back to their task queue for another attempt."
        ),
        "delete": CommandEntry("actions", "Delete jobs that have ended, or that have not begun."),
        "share": CommandEntry(
            "actions", "Let users and groups of your VO read a submission; without any, show who may."
        ),
        "unshare": CommandEntry("actions", "Let users and groups read a submission no more."),
    },
    "Pilots and resources": {
        "pilot": CommandEntry(
            "pilots", "List pilots, show what they do and wrote, make files of them, let them leave."
        ),
        "host": CommandEntry("pilots", "List the hosts of pilots, give them no jobs, or jobs again."),
        "site": CommandEntry("sites", "List sites, close, open, test and advertise them."),
        "queue": CommandEntry("sites", "List the queues of CEs."),
        "tq": CommandEntry("task_queues", "List task queues: jobs that can be matched alike."),
        "pool": CommandEntry(
            "task_queues", "List SubmitPools: sets of Requirements and the queues that meet them."
        ),
        "director": CommandEntry(
            "director", "Show the director, which decides how many pilots go where, and plan it."
        ),
        "class": CommandEntry(
            "job_classes", "Job classes: templates that jobs are made of, and what jobs may change."
        ),
        "quota": CommandEntry(
            "quotas", "Limit what runs at once, for users, projects, job classes, queues and hosts."
        ),
        "usage": CommandEntry(
            "usage", "Show what jobs used: jobs, failures, hours, CPU efficiency, waste by cause."
        ),
    },
    "Server": {
        "init": CommandEntry(
            "serve", "Write a configuration to start from into DIR: lode.toml, sites.toml and hello.jdl."
        ),
        "server": CommandEntry("serve", "Run the server here until Ctrl-C."),
        "config": CommandEntry("serve", "Check a configuration, or show what one may hold."),
        "db": CommandEntry(
            "database", "Copy, check, back up or migrate the database of a server, beside it."
        ),
        "user": CommandEntry("accounts", "Make, import, list, disable and remove users (administrators)."),
        "group": CommandEntry(
            "groups", "Shares and members of groups; list them, and change them (administrators)."
        ),
        "token": CommandEntry("accounts", "Issue, list and revoke tokens."),
        "audit": CommandEntry(
            "accounts", "Show who did what to users, tokens, pilots and sites, when and from where..."
        ),
    },
    "Tools": {
        "convert": CommandEntry("importing", "Write a description in another language, losing nothing."),
        "import": CommandEntry("importing", "Make configuration files of those of another system."),
        "classad": CommandEntry("classads", "Evaluate ClassAds, and match two of them."),
        "completion": CommandEntry("completion", "Print the script that completes commands in a shell."),
        "whoami": CommandEntry("accounts", "Show whose token is used, what it allows, and until when."),
        "jobstatus": CommandEntry(
            "programs",
            "Show and check what jobs publish in $JOBSTATUS: how long they stay, and what a drain or...",
        ),
        "vacate": CommandEntry(
            "programs",
            "Choose the jobs of a batch system that free enough cores and lose least, by what they...",
        ),
    },
}
COMMANDS = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}
