"""`lode pilot file`: what is written, by whom it can be read, and what is said."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import zipfile

import pytest

SECRET = "join-token-that-nobody-sees"


def program():
    """What `build_zipapp` makes: a line for the shell, and an archive."""
    whole = io.BytesIO(b"#!/usr/bin/env python3\n")
    whole.seek(0, io.SEEK_END)
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr(
            "__main__.py", "print(__loader__.get_data(__loader__.archive + '/pilot.json').decode())"
        )
    return whole.getvalue()


@pytest.fixture
def made(server):
    pilots = [
        {"id": n, "stamp": f"s-{n}", "content": json.dumps({"join_token": f"{SECRET}{n}"})} for n in (7, 8)
    ]
    answer = {
        "site": "Three", "ce": "nodes", "queue": "hand", "vo": "lab", "pilots": pilots, "expires_at": 1_795_770_000.0,
        "servers": ["https://grid.example:7777"], "notices": [], "program": base64.b64encode(program()).decode(),
    }  # fmt: skip
    server.on("POST", "/v1/pilots/files", answer)
    return answer


def test_each_pilot_is_one_file_that_only_its_owner_can_read(at, server, made, tmp_path):
    done = at(
        "pilot",
        "file",
        "--queue",
        "Three/nodes/hand",
        "--count",
        "2",
        "--hours",
        "3",
        "--dir",
        str(tmp_path / "out"),
    )
    assert done.code == 0
    assert server.asked[-1].json == {"path": "Three/nodes/hand", "count": 2, "hours": 3.0}
    files = sorted((tmp_path / "out").iterdir())
    assert [one.name for one in files] == ["lodesman-pilot-7.pyz", "lodesman-pilot-8.pyz"]
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600}
    ran = subprocess.run([sys.executable, str(files[1])], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == {"join_token": f"{SECRET}8"}
    assert done.out.splitlines() == [
        "2 pilots of VO lab for Three/nodes/hand, to be started until 2026-11-27 09:00 UTC:",
        f"  {files[0]}",
        f"  {files[1]}",
        "Copy each file to a machine (scp -p FILE NODE:), and start it there, once, under an account without rights:",
        "  python3 -I lodesman-pilot-7.pyz",
    ]


def test_no_secret_is_printed(at, made, tmp_path):
    done = at("pilot", "file", "--queue", "Three/nodes/hand", "--dir", str(tmp_path), "--json")
    assert SECRET not in done.out + done.err
    assert done.json["files"] == {str(n): str(tmp_path / f"lodesman-pilot-{n}.pyz") for n in (7, 8)}
    assert (done.json["queue"], done.json["expires_at"]) == ("Three/nodes/hand", 1_795_770_000.0)


def test_what_may_keep_the_pilots_from_the_server_is_said(at, made, tmp_path):
    made["notices"].append("The address of the server is http://127.0.0.1:7777.")
    done = at("pilot", "file", "--queue", "Three/nodes/hand", "--dir", str(tmp_path))
    assert done.err.splitlines() == ["lode: The address of the server is http://127.0.0.1:7777."]


def test_where_no_file_can_be_written_no_pilot_is_stored(at, server, tmp_path):
    (tmp_path / "file").write_text("")
    done = at("pilot", "file", "--queue", "Three/nodes/hand", "--dir", str(tmp_path / "file"))
    assert done.code == 2
    assert server.asked == []


def test_a_file_that_is_there_is_never_overwritten(at, made, tmp_path):
    (tmp_path / "lodesman-pilot-7.pyz").write_text("mine")
    done = at("pilot", "file", "--queue", "Three/nodes/hand", "--dir", str(tmp_path))
    assert done.code == 1
    assert "lodesman-pilot-7.pyz" in done.err
    assert (tmp_path / "lodesman-pilot-7.pyz").read_text() == "mine"
