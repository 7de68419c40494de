"""Identities: what a batch system is for each, whose pilots they submit, and who is asked about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig
from lodesman.decide.director.options import IdentityRule, PoolOptions
from lodesman.decide.director.orders import PilotIdentity, TypeReason, account_of, submitted_to
from lodesman.server.config import load_config
from lodesman.server.config.set_up import queue_outlooks
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.run.ssh import Ssh
from lodesman.server.main.backends import make_backend

SITES = """[group.physics]
vo = "lab"
[site.A]
VO = ["lab"]
[site.A.ce.c.queue.q]
Backend = "slurm"
[site.A.ce.far.queue.q]
Backend = "slurm@login.example"
[site.A.ce.grid.queue.q]
Backend = "grid"
[site.A.ce.own.queue.q]
Backend = "slurm+alice"
"""
GRID = '[backend.grid]\ntype = "arc"\nurl = "https://ce"\ncertificate = "/host"\nkey = "/key"\n'
ALICE = '[identity.Alice]\nowner = "alice"\naccount = "al"\n'


@pytest.fixture
def load(tmp_path):
    def load(text):
        (tmp_path / "sites.toml").write_text(SITES)
        path = tmp_path / "lode.toml"
        path.write_text(f'[resources]\nfiles = ["sites.toml"]\n{GRID}{text}')
        return load_config(path)

    return load


def faults(load, text):
    with pytest.raises(InvalidConfig) as refused:
        load(text)
    return [(one["line"], one["message"]) for one in refused.value.data["faults"]]


def test_an_identity_is_a_batch_system_of_its_own_wherever_it_fits(load):
    config = load(ALICE)
    assert {name: (one.account, one.host) for name, one in config.backends.items()} == {
        "slurm": ("", ""), "slurm+alice": ("al", ""), "grid": ("", ""),
        "slurm@login.example": ("", "login.example"), "slurm@login.example+alice": ("", "al@login.example"),
    }  # fmt: skip
    rule = config.director.identities["alice"]
    assert rule == IdentityRule(owner="alice", backends=frozenset({"slurm", "slurm@login.example"}))
    (own,) = [one for one in queue_outlooks(config) if one.queue == "A/own/q"]
    assert not own.fault  # a queue that names it has all its pilots submitted so


def test_a_credential_stands_instead_of_that_of_the_batch_system(load):
    text = '[identity.vo]\ngroup = "physics"\ntoken_file = "/vo"\nrequired_time_left = 600\nrenew = ["get"]\n'
    found = load(text)
    grid = found.backends["grid+vo"]
    assert (grid.certificate, grid.key, grid.token_file, grid.url) == ("", "", "/vo", "https://ce")
    assert (grid.required_time_left, grid.renew) == (600.0, ("get",))
    assert found.director.identities["vo"].backends == {"grid"}  # commands of Slurm have no token


def test_a_key_and_a_user_for_ssh(load):
    text = '[identity.a]\nbackends = ["Slurm@login.example"]\naccount = "al"\nssh_key = "/k"\n'
    config = load(text)
    section = config.backends["slurm@login.example+a"]
    runner = cast("Ssh", cast("Any", make_backend(section, Path("/s"))).runner)
    assert (runner.user, runner.host, runner.identity) == ("al", "login.example", Path("/k"))
    assert "slurm+a" not in config.backends


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[identity.a]\nacount = "x"', "acount is not an option"),
        (
            '[identity.a]\nbackends = ["slum"]\naccount = "x"',
            "there is no backend slum; there are grid, slurm",
        ),
        ('[identity.a]\nbackends = ["grid"]\naccount = "x"', "it does not fit grid: account is an option of"),
        (
            '[identity.a]\nbackends = ["slurm"]\nssh_key = "/k"',
            "it does not fit slurm: a key is for commands by SSH",
        ),
        ('[identity.a]\ntoken_file = "/t"\nssh_key = "/k"', "there is no batch system that it fits"),
        ('[identity.a]\nowner = "alice"', "it names no account, no ssh_key"),
        ('[identity.a]\naccount = "al"\nrenew = ["x"]', "key, renew and required_time_left are for"),
        (
            f'{ALICE}[identity.b]\nowner = "alice"\naccount = "x"',
            "identity alice is of the same owner and group",
        ),
        (f'{ALICE}[director]\nidentity = "alce"', "there is no [identity.alce]; did you mean alice?"),
        ('[backend."a+b"]\ntype = "slurm"', "a + in the name stands before an identity"),
    ],
)
def test_faults_have_a_line_and_a_reason(load, text, words):
    assert any(line > 7 and words in message for line, message in faults(load, text)), faults(load, text)


RULES = {
    "person": IdentityRule(owner="ann", group="physics", backends=frozenset({"slurm"})),
    "owner": IdentityRule(owner="ann"),
    "group": IdentityRule(group="physics", backends=frozenset({"slurm", "grid"})),
    "pilots": IdentityRule(backends=frozenset({"slurm"})),
}


def who(owner, group, *, private=True):
    return PilotIdentity(private=private, owner=owner, group=group, reason=TypeReason.DRAWN)


@pytest.mark.parametrize(
    ("owner", "group", "private", "account"),
    [
        ("ann", "physics", True, "person"),
        ("ann", "chemistry", True, "owner"),
        ("bob", "physics", True, "group"),
        ("bob", "chemistry", True, "pilots"),
        ("ann", "physics", False, "pilots"),
    ],
)
def test_whose_pilots_are_submitted_with_which_identity(owner, group, private, account):
    pool = PoolOptions(name="Grid", identity="Pilots")
    assert account_of(who(owner, group, private=private), pool, RULES) == account
    assert account_of(who("bob", "chemistry"), PoolOptions(name="Local"), RULES) == ""


@given(st.sampled_from([*RULES, "", "gone"]), st.sampled_from(["slurm", "grid", "local"]))
def test_an_identity_changes_nothing_where_it_has_nothing(account, backend):
    found = submitted_to(backend, account, RULES)
    has_it = account in RULES and backend in RULES[account].backends
    assert found == (f"{backend}+{account}" if has_it else backend)


def test_commands_of_an_identity_run_as_its_account_by_sudo_without_a_question(load, tmp_path, monkeypatch):
    """A fake sudo notes its words and runs the command."""
    (tmp_path / "sudo").write_text(
        f'#!/bin/sh\nprintf "%s|" "$@" >> "{tmp_path}/said"\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    (tmp_path / "sudo").chmod(0o755)
    (tmp_path / "squeue").write_text('#!/bin/sh\necho "$0 ran"\n')
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    backends = load(ALICE).backends
    done = {}
    for name in ("slurm", "slurm+alice"):
        runner = cast("Here", cast("Any", make_backend(backends[name], tmp_path)).runner)
        done[name] = runner.run(["squeue", "--me"])
    assert {one.out for one in done.values()} == {f"{tmp_path}/squeue ran\n"}
    assert (tmp_path / "said").read_text() == "-n|-H|--preserve-env=LC_ALL|-u|al|--|squeue|--me|"
