"""Bugs in commands, in a real server: each costs one request; a writer that dies is replaced with its process."""

from __future__ import annotations

import pytest
from tests.e2e.conftest import wait_until

PLANTED = """
from lodesman.server.writer import submit

good = submit.Submit.apply

def apply(self, tx):
    found = good(self, tx)
    name = self.prepared.name
    if name == "bug":
        import a_module_that_nobody_has
    if name == "death":
        raise SystemExit("planted")
    return found

submit.Submit.apply = apply
"""


@pytest.mark.stores
def test_bugs_cost_one_request_and_a_dead_writer_starts_anew(make_server, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    server = make_server().start()
    server.user("ann", "physics")
    first = server.submit({"JobName": "good"})

    bug = server.ask(
        "POST", "/v1/jobs", {"jobs": [{"Executable": "/bin/true", "JobName": "bug"}]}, token="ann"
    )
    assert bug.status == 500
    assert "nothing was stored" in bug.json["error"]["message"]
    second = server.submit({"JobName": "good"})

    death = server.ask(
        "POST", "/v1/jobs", {"jobs": [{"Executable": "/bin/true", "JobName": "death"}]}, token="ann"
    )
    assert death.status == 503
    wait_until(lambda: "started again after a fault" in server.log.read_text(), "the log line")
    wait_until(server.is_up, "the server again")
    assert server.process.poll() is None  # the same process id, as a service manager wants it
    third = server.submit({"JobName": "good"})
    for job in (first, second, third):
        server.wait_for("Done", job)
    critical = [line["message"] for line in server.log_lines() if line["level"] == "critical"]
    assert [text.split(";")[0] for text in critical] == [
        "the writer ended", "the server is started again after a fault",
    ]  # fmt: skip
    assert server.stop() == 0, server.tail()
