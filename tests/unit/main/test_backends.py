"""The batch systems of the background process follow the configuration, and forget none that may have pilots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.server.config.backends import BackendSection
from lodesman.server.main.backends import Backends, make_backend, queues_by_backend

LOCAL, Q1, Q2 = QueueId("A", "l", "q"), QueueId("A", "c", "q1"), QueueId("A", "c", "q2")
SLURM = BackendSection(type="slurm", host="login")


def policy(text='Backend = "slurm"'):
    sites = f"""
[site.A]
VO = ["lab"]
[site.A.ce.l.queue.q]
[site.A.ce.c]
{text}
[site.A.ce.c.queue.q1]
[site.A.ce.c.queue.q2]
"""
    return Policy(load_resources([("sites.toml", sites)]))


class World:
    """Backends that are their sections."""

    def __init__(self, folder, with_pilots=()) -> None:
        self.polled: list[tuple[str, float]] = []
        self.found = Backends(
            cast("Any", "the local one"), make=cast("Any", self.make), watch=cast("Any", self.watch),
            begin=lambda watch, seconds: self.polled.append((watch.name, seconds)),
            kept=folder / "backends.json", with_pilots=with_pilots,
        )  # fmt: skip

    def make(self, section):
        if section.type == "broken":
            raise InvalidConfig("It cannot be.")
        return section

    def watch(self, name, backend):
        return SimpleNamespace(name=name, backend=backend, queues=(), credential=None)

    def queues(self):
        return {name: watch.queues for name, watch in self.found.watches.items()}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_queues_by_backend():
    assert queues_by_backend(policy()) == {"local": (LOCAL,), "slurm": (Q1, Q2)}


def test_a_new_one_is_polled_with_its_queues(world):
    world.found.configure({"slurm": SLURM}, policy(), 60.0)
    assert world.found.watches["slurm"].backend == SLURM
    assert world.queues() == {"local": (), "slurm": (Q1, Q2)}
    assert world.polled == [("slurm", 30.0)]
    world.found.configure({"slurm": SLURM}, policy(), 60.0)
    assert world.polled == [("slurm", 30.0)]


def test_a_changed_one_keeps_its_watch(world):
    world.found.configure({"slurm": SLURM}, policy(), 60.0)
    watch, other = world.found.watches["slurm"], BackendSection(type="slurm", host="another")
    world.found.configure({"slurm": other}, policy(), 60.0)
    assert world.found.watches["slurm"] is watch
    assert watch.backend == other
    assert len(world.polled) == 1


def test_the_credential_of_a_section_must_be_good_for_its_own_time_or_the_director_s(world):
    proxy = BackendSection(type="arc", url="https://ce", certificate="/proxy")
    world.found.configure({"arc": proxy, "slurm": SLURM}, policy(), 60.0)
    first = world.found.watches["arc"].credential
    assert (first.certificate, first.required_seconds) == ("/proxy", 60.0)
    assert world.found.watches["slurm"].credential is None
    world.found.configure({"arc": proxy}, policy(), 60.0)
    assert world.found.watches["arc"].credential is first  # what it found last is still true
    own = BackendSection(type="arc", url="https://ce", certificate="/proxy", required_time_left=5.0)
    world.found.configure({"arc": own}, policy(), 60.0)
    assert world.found.watches["arc"].credential.required_seconds == 5.0


def test_an_htcondor_ce_is_asked_with_the_files_of_its_section(tmp_path):
    section = BackendSection(
        type="htcondor", token_file="/token", certificate="/proxy", environment={"BEARER_TOKEN_FILE": "/mine"}
    )
    runner = cast("Any", make_backend(section, tmp_path)).runner
    assert runner.environment == {"X509_USER_PROXY": "/proxy", "BEARER_TOKEN_FILE": "/mine"}


def test_one_that_is_configured_no_more_is_asked_about_its_pilots_alone(world):
    world.found.configure({"slurm": SLURM}, policy(), 60.0)
    world.found.configure({}, policy("Backend = 'local'"), 60.0)
    assert world.queues() == {"local": (), "slurm": ()}
    world.found.configure({"slurm": SLURM}, policy(), 60.0)
    assert world.queues() == {"local": (), "slurm": (Q1, Q2)}
    assert len(world.polled) == 1


def test_after_a_start_one_that_is_configured_no_more_is_asked_about_its_pilots(tmp_path):
    World(tmp_path).found.configure({"slurm": SLURM, "other": SLURM}, policy(), 60.0)
    assert (tmp_path / "backends.json").stat().st_mode & 0o077 == 0
    world = World(tmp_path, with_pilots={"slurm", "local", "never there"})
    world.found.configure({}, policy("Backend = 'local'"), 60.0)
    assert world.found.watches["slurm"].backend == SLURM
    assert world.queues() == {"local": (), "slurm": ()}
    assert world.polled == [("slurm", 30.0)]
    changed = BackendSection(type="slurm", host="another")
    world.found.configure({"slurm": changed}, policy(), 60.0)
    assert world.found.watches["slurm"].backend == changed
    assert World(tmp_path, with_pilots={"slurm"}).found.watches["slurm"].backend == changed


@pytest.mark.parametrize("text", ["{", '{"slurm": {"type": "broken"}}', '{"slurm": {"type": 7}}', "[]"])
def test_what_was_kept_keeps_no_server_from_starting(tmp_path, text, caplog):
    (tmp_path / "backends.json").write_text(text)
    world = World(tmp_path, with_pilots={"slurm"})
    world.found.configure({}, policy(), 60.0)
    assert list(world.found.watches) == ["local"]
    assert "not known" in caplog.text or "no more" in caplog.text


def test_one_that_cannot_be_made_changes_nothing(world):
    world.found.configure({"slurm": SLURM}, policy(), 60.0)
    sections = {"slurm": BackendSection(type="slurm", host="another"), "x": BackendSection(type="broken")}
    with pytest.raises(InvalidConfig):
        world.found.configure(sections, policy(), 60.0)
    assert world.found.watches["slurm"].backend == SLURM
    assert list(world.found.watches) == ["local", "slurm"]
