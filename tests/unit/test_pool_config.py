"""What submission pools serve, held against the sites, queues and batch systems of the same configuration."""

from __future__ import annotations

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.server.config import load_config
from lodesman.server.config.set_up import mistakes, queue_outlooks

SITES = """[group.physics]
vo = "lab"
[site.North.ce.cn.queue.long]
VO = ["lab"]
[site.South.ce.cs.queue.long]
VO = ["lab"]
Backend = "slurm"
"""


@pytest.fixture
def load(tmp_path):
    def load(director):
        (tmp_path / "sites.toml").write_text(SITES)
        path = tmp_path / "lode.toml"
        path.write_text(
            f'[resources]\nfiles = ["sites.toml"]\n[director]\nSubmitPools = ["A", "B"]\n{director}'
        )
        return load_config(path)

    return load


def test_good_names_are_taken(load):
    lists = (
        'Backends = ["slurm", "local", "manual"]\nSites = ["North"]\nQueues = ["South/cs", "South/cs/long"]\n'
    )
    scope = load(f"[director.B]\n{lists}").director.scopes["B"]
    assert (scope.sites, scope.queues) == (("North",), ("South/cs", "South/cs/long"))


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ('[director.B]\nSites = ["Nort"]', 6, "Sites: there is no Nort; did you mean North?"),
        ('[director.B]\n\nBackends = ["slum"]', 7, "Backends: there is no slum; did you mean slurm?"),
        (
            '[director.B]\nQueues = ["North/cn/lang"]',
            6,
            "there is no North/cn/lang; did you mean North/cn/long?",
        ),
        ('[director.B]\nQueues = ["Moon/x"]', 6, "Queues: there is no Moon/x"),
        ('Sites = ["East"]', 5, "Sites: there is no East"),
    ],
)
def test_unknown_names_are_faults_with_their_line(load, lines, line, words):
    with pytest.raises(InvalidConfig) as refused:
        load(lines)
    (fault,) = refused.value.data["faults"]
    assert (fault["line"], words in fault["message"]) == (line, True)


def test_only_local_pilots_need_their_python_on_this_machine(load, monkeypatch):
    monkeypatch.setattr("lodesman.server.config.set_up.shutil.which", lambda _name: None)
    config = load("")
    assert any("local pilots could not start" in one for one in mistakes(config, queue_outlooks(config)))
    others = [one for one in queue_outlooks(config) if not one.pilots.startswith("local")]
    assert others
    assert not list(mistakes(config, others))


def test_a_queue_that_no_pool_serves_is_a_mistake(load):
    config = load('Sites = ["North"]')
    (text,) = (one for one in mistakes(config, queue_outlooks(config)) if "python" not in one)
    assert text == "South/cs/long: no pilots are sent there: no submission pool serves it"
    good = load('[director.A]\nSites = ["North"]\n[director.B]\nBackends = ["slurm"]')
    assert not [one for one in queue_outlooks(good) if one.fault]
