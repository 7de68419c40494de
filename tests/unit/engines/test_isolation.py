"""How local pilots are kept from the server: what is tried, what follows, and how it is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lodesman.server.engines import isolation
from lodesman.server.engines.isolation import Isolation, Wishes, find_isolation

NOBODY = ("nobody", 65534, 65534)
ROOT = ("root", 0, 0)


@pytest.mark.parametrize(
    ("found", "separate"),
    [
        (Isolation(namespaces=True), True),
        (Isolation(namespaces=True, account=NOBODY), True),
        (Isolation(account=NOBODY), True),
        (Isolation(), False),
        (Isolation(namespaces=True, account=ROOT), False),  # root undoes mounts
        (Isolation(account=NOBODY, usable=False), False),
    ],
)
def test_what_keeps_jobs_from_the_server(found, separate):
    assert found.separate is separate
    assert (found.closed(2) == "") is separate


def test_one_account_may_do_without_and_several_only_if_their_jobs_are_trusted():
    found = Isolation(fault="user namespaces are refused here")
    assert found.closed(1) == ""
    assert "trust_jobs = true" in found.closed(2)
    assert Isolation(trusted=True).closed(2) == ""
    assert Isolation(trusted=True, usable=False, fault="x").closed(1)


@pytest.mark.parametrize(
    ("found", "accounts", "words"),
    [
        (Isolation(namespaces=True), 9, "isolated by namespaces, as the account of the server."),
        (Isolation(account=NOBODY, fault="no namespaces"), 9, "as the account nobody (no namespaces)."),
        (
            Isolation(fault="why"),
            1,
            "may do all that the server may: why; a second account closes all local queues.",
        ),
        (Isolation(fault="why"), 2, "refused, since the jobs of 2 accounts"),
        (Isolation(fault="why", trusted=True), 2, "the configuration trusts all jobs"),
        (Isolation(fault="why", usable=False), 1, "refused, since they cannot be kept from the server: why."),
    ],
)
def test_one_line_says_it(found, accounts, words):
    assert words in found.sentence(accounts)


def test_a_plan_of_the_servers_own_account_names_none():
    plan = json.loads(Isolation(namespaces=True, hidden=("/data",)).plan(Path("/w")))
    assert (plan["account"], plan["environment"], plan["hidden"], plan["certain"]) == (
        None,
        {},
        ["/data"],
        True,
    )
    plan = json.loads(Isolation(account=NOBODY).plan(Path("/w")))
    assert plan["account"] == {"uid": 65534, "gid": 65534}
    assert plan["environment"]["HOME"] == "/w"
    assert not json.loads(Isolation().plan(Path("/w")))["certain"]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """What isolation this machine gives: to a user, and the trials that fail."""

    def make(uid, *, namespaces, account=True):
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        monkeypatch.setattr(isolation, "_system_account", lambda make: NOBODY)

        def attempt(found, wishes):
            return "" if (namespaces if found.namespaces else account) else "Operation not permitted"

        monkeypatch.setattr(isolation, "_try", attempt)
        return lambda **more: find_isolation(Wishes(data=tmp_path, **more), make_account=False)

    return make


def test_a_program_that_is_not_there_is_named_with_its_setting(machine):
    found = machine(0, namespaces=False, account=False)(python="/usr/bin/python9")
    said = "cannot start: there is no program '/usr/bin/python9' (python of [pilots])"
    assert (found.usable, found.closed(1)) == (False, f"local pilots {said}")
    assert found.sentence() == f"Local pilots: refused, since they {said}."


def test_a_user_has_namespaces_or_nothing(machine):
    assert machine(1000, namespaces=True)().separate
    found = machine(1000, namespaces=False)()
    assert (found.separate, found.usable, found.account) == (False, True, None)
    assert "Operation not permitted" in found.fault


def test_root_has_another_account_always(machine):
    assert machine(0, namespaces=True)().account == NOBODY
    found = machine(0, namespaces=False)()
    assert (found.separate, found.namespaces, found.folder_mode) == (True, False, 0o711)
    assert not machine(0, namespaces=False, account=False)().usable
    assert not machine(0, namespaces=True)(run_as="no-such-account").usable


def test_root_is_root_only_if_it_says_so(machine):
    found = machine(0, namespaces=True)(run_as="root")
    assert found.usable
    assert not found.separate
    assert found.account == ROOT


def test_an_account_of_that_name_that_is_root_is_not_taken(monkeypatch):
    monkeypatch.setattr(isolation, "_account", {"lodesman": ("lodesman", 0, 0), "nobody": NOBODY}.get)
    assert isolation._system_account(make=False) == NOBODY


def test_only_root_can_change_the_account(machine):
    assert not machine(1000, namespaces=True)(run_as="nobody").usable


def test_trusted_jobs_may_write_where_the_account_may(machine, tmp_path):
    untrusted = machine(1000, namespaces=True)(program=(tmp_path,))
    assert str(tmp_path) in untrusted.read_only
    assert machine(1000, namespaces=True)(program=(tmp_path,), trust_jobs=True).read_only == ()


def test_a_folder_of_all_accounts_stays_open_to_jobs(machine):
    assert "/tmp" not in machine(1000, namespaces=True)(program=(Path("/tmp"),)).read_only


def test_keys_outside_the_data_are_hidden(machine, tmp_path):
    key = tmp_path / "server.key"
    assert str(key) in machine(1000, namespaces=True)(secrets=(key,)).hidden


def test_the_notes_by_which_users_find_their_servers_are_hidden(machine, monkeypatch):
    """Else a job could lead its account to a server of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", "/var/of-ann")
    assert "/var/of-ann/lodesman/servers" in machine(1000, namespaces=True)().hidden


@pytest.mark.slow
def test_a_trial_says_why_it_failed(tmp_path):
    assert isolation._try(Isolation(), Wishes(data=tmp_path, python="python3")) == ""
    fault = isolation._try(Isolation(), Wishes(data=tmp_path, python="/no/python"))
    assert "No such file" in fault


@pytest.mark.slow
@pytest.mark.parametrize("namespaces", [False, True])
def test_a_program_that_does_not_end_leaves_no_process(tmp_path, monkeypatch, namespaces):
    """Neither it, nor what it started."""
    found = Isolation(namespaces=namespaces)
    if isolation._try(found, Wishes(data=tmp_path, python="python3")):
        pytest.skip("this machine has no namespaces")
    hanging, fifo = tmp_path / "hanging", tmp_path / "alive"
    os.mkfifo(fifo)
    hanging.write_text(f"#!/bin/sh\nexec 3>{fifo}\nsleep 1000 &\nsleep 1000\n")
    hanging.chmod(0o755)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    monkeypatch.setattr(isolation, "_PROBE_SECONDS", 3.0)
    assert (
        isolation._try(found, Wishes(data=tmp_path, python=str(hanging))) == f"{hanging} does not end there"
    )
    assert os.read(reader, 1) == b"", "its end is that of the last process that could write"
    os.close(reader)
