"""How many pilots each queue of the local backend runs at once, from the configuration as it is written."""

from __future__ import annotations

import pytest

from lodesman.config import load_config
from lodesman.daemon import background

SITES = """
[site.S.ce.here.queue.written]
Slots = 1
[site.S.ce.here.queue.folded]
sLOTS = 2
[site.S.ce.here.queue.total]
maxtotaljobs = 3
[site.S.ce.here.queue.cores]
numberofprocessors = 4
[site.S.ce.there]
backend = "elsewhere"
[site.S.ce.there.queue.q]
slots = 9
[site.S.ce.type]
cetype = "Elsewhere"
[site.S.ce.type.queue.q]
slots = 9
[site.S.ce.named]
BACKEND = "Local"
[site.S.ce.named.queue.q]
slots = 5
"""


@pytest.fixture
def slots(tmp_path, monkeypatch):
    monkeypatch.setattr(background.os, "cpu_count", lambda: 16)
    (tmp_path / "sites.toml").write_text(SITES)
    own = tmp_path / "lode.toml"
    own.write_text('[resources]\nfiles = ["sites.toml"]\n')
    return background._slots(load_config(own))


def test_letter_case_in_names_does_not_matter(slots):
    found = {queue: count for (_, ce, queue), count in slots.items() if ce == "here"}
    assert found == {"written": 1, "folded": 2, "total": 3, "cores": 4}


def test_only_queues_of_the_local_backend_have_local_slots(slots):
    assert {ce for _, ce, _ in slots} == {"here", "named"}
    assert slots["S", "named", "q"] == 5
