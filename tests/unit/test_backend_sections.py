"""Batch systems as they are configured: with a section of their own, and by the names that queues give them."""

from __future__ import annotations

import pytest

from lodesman.config import load_config
from lodesman.errors import InvalidConfig
from lodesman.resources.backends import MANUAL, spelled_backend

SITES = """
[site.A]
VO = ["lab"]
[site.A.ce.c.queue.q]
Backend = "slurm@login.example.org"
[site.A.ce."ce.example.org"]
CEType = "AREX"
[site.A.ce."ce.example.org".queue.q]
[site.A.ce.h]
CEType = "HTCondorCE"
[site.A.ce.h.queue.q]
[site.A.ce.g.queue.q]
Backend = "cluster"
[site.A.ce.l.queue.q]
[site.A.ce.m.queue.q]
Backend = "manual"
[site.A.ce.m.queue.other]
Backend = "By-Hand"
[site.A.ce.n.queue.q]
Backend = "typo"
[site.A.ce.o.queue.q]
Backend = "slurm@login:ssh"
[site.A.ce.p.queue.q]
Backend = "arc"
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        (tmp_path / "sites.toml").write_text(SITES)
        path = tmp_path / "lode.toml"
        path.write_text(f'{text}\n[resources]\nfiles = ["sites.toml"]\n')
        return load_config(path)

    return load


def test_backends_that_queues_name_need_no_section(load):
    found = load("").backends
    assert {name: (one.type, one.host, one.url, one.schedd) for name, one in found.items()} == {
        "slurm@login.example.org": ("slurm", "login.example.org", "", ""),
        "arc@ce.example.org": ("arc", "", "https://ce.example.org:443/arex", ""),
        "htcondor@h": ("htcondor", "", "", "h"),
    }
    assert load("").backends["htcondor@h"].collector == "h:9619"
    assert load("").backend_names == {"local", *found}


def test_pilots_that_people_start_have_two_names():
    assert [spelled_backend(one) for one in ("manual", "by-hand", " By-Hand")] == [MANUAL] * 3


def test_backends_that_only_one_vo_sees_are_there_too(load, tmp_path):
    path = load("") and tmp_path / "lode.toml"
    more = '[site.A.vo.lab]\nCEType = "Slurm"\n[site.A.ce.g.queue.q.vo.lab]\nBackend = "sge@far"\n'
    (tmp_path / "sites.toml").write_text(SITES + more)
    assert {"slurm", "gridengine@far"} < load_config(path).backends.keys()


def test_a_section_says_what_its_name_does_not(load):
    found = load("""
[backend.Cluster]
type = "SGE"
host = "ann@login:2222"
poll_seconds = 5
submit_options = "-P physics"
[backend.Cluster.environment]
SGE_ROOT = "/opt/sge"
[backend."slurm@login.example.org"]
account = ""
submit_options = "--qos=pilots"
""").backends
    one = found["cluster"]
    assert (one.type, one.host, one.poll_seconds, one.submit_options) == (
        "gridengine", "ann@login:2222", 5.0, "-P physics",
    )  # fmt: skip
    assert one.environment == {"SGE_ROOT": "/opt/sge"}
    other = found["slurm@login.example.org"]
    assert (other.type, other.host, other.submit_options) == ("slurm", "login.example.org", "--qos=pilots")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[backend.cluster]", "the type of backend cluster is slurm, gridengine, arc or htcondor"),
        (
            "[backend.cluster]\ntype = 'pbs'",
            "the type of backend cluster is slurm, gridengine, arc or htcondor",
        ),
        ("[backend.local]", "local needs no section; its options stand in [local]"),
        ("[backend.slurm]\npoll_secs = 5", "poll_secs is not an option"),
        ("[backend.slurm]\npoll_seconds = 0", "poll_seconds"),
        ('[backend.slurm]\nsubmit_options = "\'"', "a quotation mark in submit_options is not closed"),
        ("[backend.slurm]\nhost = 'ann@h:ssh'", "the port of ann@h:ssh is no number from 1 to 65535"),
        ("[backend.slurm]\nhost = 'h:99999'", "the port of h:99999"),
        ("[backend.slurm]\nhost = 'h'\naccount = 'a'", "commands by SSH run as the user in `host`"),
        ("[backend.arc]\nurl = 'http://ce/arex'", "the address of an ARC CE begins with https://"),
        ("[backend.arc]", "the address of an ARC CE begins with https://"),
        ("[backend.slurm]\nschedd = 'x'", "schedd is an option of htcondor, not of slurm"),
        ("[backend.slurm]\nshared = false", "shared is an option of gridengine, not of slurm"),
        (
            "[backend.x]\ntype = 'ARC'\nurl = 'https://x/arex'\nhost = 'y'",
            "host is an option of batch systems with commands, not of arc",
        ),
        ("[backend]\nslurm = 5", "a table [backend.slurm] is expected"),
    ],
)
def test_what_is_wrong_in_a_section_is_named(load, text, words):
    with pytest.raises(InvalidConfig) as caught:
        load(text)
    assert words in str(caught.value.data["faults"])
    assert "lode.toml" in str(caught.value.data["faults"])


def test_what_renews_a_credential_needs_one(load):
    found = load("""
[backend.ce]
type = "htcondor"
token_file = "/run/token"
renew = ["/usr/bin/renew", "lab"]
required_time_left = 1200
""").backends["ce"]
    assert (found.renew, found.required_time_left) == (("/usr/bin/renew", "lab"), 1200.0)
    for lines, words in (
        ('type = "arc"\nurl = "https://ce"\nrenew = ["renew"]', "there is no certificate and no token_file"),
        ('type = "slurm"\nrequired_time_left = 5', "there is no certificate and no token_file"),
        ('type = "slurm"\ntoken_file = "/t"', "token_file is an option of"),
        (
            'type = "htcondor"\nhost = "h"\ntoken_file = "/t"',
            "by SSH find certificates and tokens over there",
        ),
    ):
        with pytest.raises(InvalidConfig) as refused:
            load(f"[backend.ce]\n{lines}\n")
        assert words in refused.value.message
