"""The zipapp: what is in it, that it is always the same, and that it runs alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile

import pytest

from lodesman.pilot.__main__ import _to_be_kept
from lodesman.server.engines.zipapp import build_zipapp, travelling_sources


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    target = tmp_path_factory.mktemp("package") / "pilot.pyz"
    build_zipapp(target)
    return target


def run(archive, *arguments, cwd, interpreter=sys.executable):
    return subprocess.run(
        [interpreter, "-I", str(archive), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_travels():
    names = set(travelling_sources())
    assert {
        "__main__.py",
        "lodesman/__init__.py",
        "lodesman/base/errors.py",
        "lodesman/pilot/loop.py",
    } <= names
    assert "lodesman/wire/client/connection.py" in names
    assert not any("server" in name for name in names if "threads" not in name)
    base = {"base", "base/errors", "base/kernel", "base/processes", "site", "wire"}
    assert parts_of(names) == base | {"pilot", "site/jobstatus", "wire/client"}
    assert "lodesman/site/jobstatus/channel.py" in names
    assert not any("vacat" in name or "sites" in name for name in names)
    assert parts_of(travelling_sources("jobstatus")) == base | {"site/jobstatus"}


def parts_of(names):
    """The parts of rooms; a room where its own `__init__` travels."""
    paths = [name.removeprefix("lodesman/").removesuffix(".py").split("/") for name in names if "/" in name]
    paths = [path for path in paths if path != ["__init__"]]
    return {path[0] if path[0] == "pilot" or path[1] == "__init__" else "/".join(path[:2]) for path in paths}


@pytest.mark.slow
def test_the_same_bytes_every_time(archive, tmp_path):
    again = tmp_path / "again.pyz"
    build_zipapp(again)
    assert again.read_bytes() == archive.read_bytes()
    assert stat.S_IMODE(again.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["again.pyz"]


@pytest.mark.slow
def test_it_replaces_an_older_one_in_one_step(archive, tmp_path):
    target = tmp_path / "pilot.pyz"
    target.write_text("old")
    with target.open() as old:
        build_zipapp(target)
        assert old.read() == "old"  # who runs it goes on with what it was
    assert zipfile.is_zipfile(target)


def test_it_says_how_it_is_used(archive, tmp_path):
    done = run(archive, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "--file" in done.stdout


@pytest.mark.slow
def test_unusable_arguments(archive, tmp_path):
    assert run(archive, cwd=tmp_path).returncode == 2
    done = run(archive, "--file", "nothing.json", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stderr)["event"] == "unusable"


@pytest.mark.slow
def test_the_file_is_removed_also_when_it_is_unusable(archive, tmp_path):
    (tmp_path / "pilot.json").write_text('{"join_token": "secret"}')
    done = run(archive, "--file", "pilot.json", cwd=tmp_path)
    assert done.returncode == 2
    assert not (tmp_path / "pilot.json").exists()
    assert "secret" not in done.stderr


@pytest.mark.slow
def test_a_file_that_cannot_be_removed_is_blanked(archive, tmp_path):
    """A second name stands for what a spool directory keeps."""
    (tmp_path / "pilot.json").write_text('{"join_token": "secret"}')
    os.link(tmp_path / "pilot.json", tmp_path / "spool")
    run(archive, "--file", "pilot.json", cwd=tmp_path)
    assert (tmp_path / "spool").read_text().strip() == ""


@pytest.mark.slow
def test_its_own_file_may_be_in_the_archive(archive, tmp_path):
    """`lode pilot file`: it works in a folder of its own, which is gone at the end; the archive stays."""
    whole, temporary = tmp_path / "whole.pyz", tmp_path / "tmp"
    temporary.mkdir()
    whole.write_bytes(archive.read_bytes())
    with zipfile.ZipFile(whole, "a") as more:
        more.writestr(
            "pilot.json",
            json.dumps({"servers": ["http://grid.example"], "join_token": "secret", "stamp": "s"}),
        )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, str(whole)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert (done.returncode, whole.exists(), list(temporary.iterdir())) == (2, True, [])
    assert "would travel to http://grid.example:80 in the clear" in json.loads(done.stderr)["fault"]
    assert "secret" not in done.stderr
    (tmp_path / "given.json").write_text("{")
    done = run(whole, "--file", "given.json", cwd=tmp_path)  # one that is given goes first
    assert "not JSON" in json.loads(done.stderr)["fault"]


@pytest.mark.slow
def test_a_directory_that_cannot_be_used(archive, tmp_path):
    content = {"servers": ["http://127.0.0.1:1"], "join_token": "secret", "stamp": "s"}
    (tmp_path / "pilot.json").write_text(json.dumps(content))
    (tmp_path / "in-the-way").write_text("")
    done = run(archive, "--file", "pilot.json", "--dir", "in-the-way", cwd=tmp_path)
    assert done.returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "change"),
    [(".py", lambda _: b"?"), (".pyc", lambda content: b"\0\0\0\0" + content[4:])],
    ids=["this Python needs no sources", "another Python needs nothing compiled"],
)
def test_it_is_compiled_for_one_python_and_runs_on_all(archive, tmp_path, which, change):
    altered = tmp_path / "altered.pyz"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(altered, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, change(content) if name.endswith(which) else content)
    done = run(altered, "--file", "nothing.json", cwd=tmp_path)
    assert (done.returncode, "nothing.json" in done.stderr) == (2, True)


def test_the_home_that_payloads_cannot_write_in(tmp_path):
    """Not where all accounts write, nor where the account cannot write itself, nor the pilot's own folder."""
    home, own = tmp_path / "home", tmp_path / "home/pilot"
    own.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "tmp").mkdir(mode=0o700)
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1755)
    nothing = ("", "/", "home", str(own), str(tmp_path / "tmp"), str(tmp_path / "gone"))
    assert _to_be_kept(nothing, own) == ()
    some = (str(tmp_path / "link"), str(home), str(tmp_path / "sticky"))
    assert _to_be_kept((*nothing, *some), own) == (str(home), str(tmp_path / "sticky"))
