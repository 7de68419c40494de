"""What is said of set-ups that can be read and cannot work: the line, what is wrong, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lodesman.server.config import load_config
from lodesman.server.config.set_up import set_up_notices

TLS_PAIR = Path(__file__).parents[1] / "data" / "tls" / "server.pem"  # of localhost and 127.0.0.1
LOCAL = '[group.g]\nvo = "lab"\n[site.S]\nVO = ["lab"]\n[site.S.ce.c.queue.q]\nSlots = 1\n'
SLURM = f'{LOCAL}Backend = "slurm"\n'
TLS = 'tls_certificate = "pair.pem"\ntls_key = "pair.pem"\n'


@pytest.fixture
def said(tmp_path):
    """File, line and message of each notice."""
    pair = tmp_path / "pair.pem"
    pair.write_bytes(TLS_PAIR.read_bytes())
    pair.chmod(0o600)

    def said(own, sites=LOCAL):
        (tmp_path / "sites.toml").write_text(sites)
        (tmp_path / "lode.toml").write_text(f'{own}\n[resources]\nfiles = ["sites.toml"]\n')
        found = set_up_notices(load_config(tmp_path / "lode.toml"))
        return [(Path(one.source.file).name, one.source.line, one.message) for one in found]

    return said


CASES = {
    "loopback": (
        "[server]\nport = 7777\nhost = '127.0.0.1'", SLURM, "lode.toml", 3,
        "pilots in S/c/q (slurm) would be given http://127.0.0.1:7777, which is their own node",
        "set public_url to that address",
    ),
    "loopback by default": (
        "[server]\nport = 7777", SLURM, "lode.toml", 1, "would be given http://127.0.0.1:7777", "set public_url",
    ),
    "loopback as public": (
        "[server]\npublic_url = 'http://localhost:1'", SLURM, "lode.toml", 2, "would be given http://localhost:1",
        "let public_url be the address",
    ),
    "loopback in short": (
        "[server]\nhost = '127.1'", SLURM, "lode.toml", 2, "would be given http://127.1:7777", "set public_url",
    ),
    "loopback of IPv6": (
        "[server]\npublic_url = 'http://[::ffff:127.0.0.1]:1'", SLURM, "lode.toml", 2,
        "which is their own node", "let public_url",
    ),
    "loopback with a point": (
        "[server]\npublic_url = 'http://LocalHost.:1'", SLURM, "lode.toml", 2, "which is their own node", "let public_url",
    ),
    "every address as public": (
        f"[server]\n{TLS}public_url = 'https://0:1'", SLURM, "lode.toml", 4, "which is their own node", "let public_url",
    ),
    "every address in short": (
        f"[server]\nhost = '0x0'\n{TLS}", LOCAL, "lode.toml", 2,
        "listens on every address and gives pilots and users https://127.0.0.1:7777", "public_url",
    ),
    "of one VO": (
        "[server]\nport = 7", f"{LOCAL}[site.S.ce.c.queue.q.vo.lab]\nBackend = 'sge@far'\n", "lode.toml", 1,
        "pilots in S/c/q (gridengine@far) would be given", "set public_url",
    ),
    "every address": (
        f"[server]\nhost = '0.0.0.0'\n{TLS}", LOCAL, "lode.toml", 2,
        "listens on every address and gives pilots and users https://127.0.0.1:7777", 'public_url = "https://NAME:7777"',
    ),
    "every address of IPv6": (
        f"[server]\n{TLS}host = '::'\n", SLURM, "lode.toml", 4, "gives pilots and users https://[::1]:7777", "set",
    ),
    "no name": (f"[server]\n{TLS}host = ''\n", SLURM, "lode.toml", 4, "listens on every address", "set public_url"),
    "certificate of another name": (
        f"[server]\nhost = '0.0.0.0'\npublic_url = 'https://grid.example:7777'\n{TLS}", SLURM, "lode.toml", 4,
        "are given https://grid.example:7777 and would refuse", "subjectAltName = DNS:grid.example",
    ),
    "certificate of another number": (
        f"[server]\n{TLS}host = '192.0.2.7'\n", SLURM, "lode.toml", 2, "pair.pem: IP address mismatch",
        "subjectAltName = IP:192.0.2.7",
    ),
    "port": (
        "[server]\nport = 0\npublic_url = ''\nhost = '192.0.2.7'\n" + TLS, SLURM, "lode.toml", 2,
        "port 0 is another one at each start", "set a port",
    ),
    "key": (
        "[backend.Far]\ntype = 'slurm'\nhost = 'far'\nidentity = '/no/such/key'", f'{LOCAL}Backend = "far"\n', "lode.toml",
        4, "identity: there is no file /no/such/key, so far cannot be asked", "correct its name",
    ),
    "token": (
        "[backend.ce]\ntype = 'arc'\nurl = 'https://ce/arex'\ntoken_file = '/no/token'", LOCAL, "lode.toml", 4,
        "token_file: there is no file /no/token", "put it there",
    ),
    "lease": (
        "[pilots]\nheartbeat_seconds = 60\nlease_seconds = 30\n", LOCAL, "lode.toml", 3,
        "send a heartbeat each 60 s and are lost 30 s after one", "several times heartbeat_seconds",
    ),
    "wall time": (
        "", f"{LOCAL}WallTime = 3600\n", "sites.toml", 7,
        "no queue of VO lab takes a job that says no CPUTime, which then is 86400 s: the longest, S/c/q, has 34",
        "let jobs say CPUTime (lode submit --cpu-time 5",
    ),
    "wall time of the site": (
        "", LOCAL.replace('VO = ["lab"]', 'VO = ["lab"]\nWallTime = "1h"'), "sites.toml", 5, "by its WallTime", "--cpu-time",
    ),
    "cpu time": ("", f"{LOCAL}CPUTime = 1000\n", "sites.toml", 7, "has 1000 s of it by its CPUTime", '"h_cpu=1000"'),
    "life": (
        "[pilots]\nlife_seconds = 1800", f"{LOCAL}WallTime = 7200\n", "lode.toml", 2, "by life_seconds = 1800", "--cpu-time",
    ),
    "no time": ("[pilots]\nlife_seconds = 30", LOCAL, "lode.toml", 2, "has 0 s of it", "make it longer"),
}  # fmt: skip


def test_each_set_up_that_cannot_work_is_said_with_its_line_and_what_to_do(said):
    odd = {}
    for name, (own, sites, file, line, what, remedy) in CASES.items():
        found = said(own, sites)
        if not any(one[:2] == (file, line) and what in one[2] and remedy in one[2] for one in found):
            odd[name] = found
    assert odd == {}


GOOD = {
    "here": ("", LOCAL),
    "by hand": ("", f'{LOCAL}Backend = "manual"\n'),
    "another queue is long": ("", f"{LOCAL}WallTime = 3600\n[site.S.ce.c.queue.long]\nWallTime = '3 d'\n"),
    "a default": ("[job_classes.defaults]\nl_hard = 'h_cpu=600'", f"{LOCAL}WallTime = 3600\n"),
    "public": (f"[server]\nhost = '0.0.0.0'\npublic_url = 'https://localhost:7777'\n{TLS}", LOCAL),
    "a token that a command makes": (
        "[backend.ce]\ntype = 'arc'\nurl = 'https://ce/arex'\ntoken_file = '/no/token'\nrenew = ['renew']",
        LOCAL,
    ),
    "a proxy": ("[server]\npublic_url = 'https://grid.example'", SLURM),
    "none": ("", ""),
}


def test_nothing_is_said_of_set_ups_that_work(said):
    assert {name: said(*given) for name, given in GOOD.items() if said(*given)} == {}
