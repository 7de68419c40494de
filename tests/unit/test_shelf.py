"""Files on the shelf: what is announced is what lies there, and nothing else stays."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.base.errors import InvalidRequest, TooLarge
from lodesman.server.store import shelf as module
from lodesman.server.store.shelf import Shelf

LIMIT = 50


def digest(content):
    return hashlib.sha256(content).hexdigest()


async def parts(chunks, fault=None):
    for chunk in chunks:
        yield chunk
    if fault is not None:
        raise fault


def store(shelf, chunks, path, sha, fault=None):
    return asyncio.run(shelf.store(parts(chunks, fault), path, sha))


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "sandboxes", limit_bytes=LIMIT)


def files(shelf):
    return [path for path in shelf.root.rglob("*") if path.is_file()]


@at_most(50)
@given(st.lists(st.binary(max_size=20), max_size=5))
def test_a_file_is_stored_whole_or_not_at_all(shelf, chunks):
    whole = b"".join(chunks)
    path = shelf.input_path("ann", digest(whole))
    if len(whole) > LIMIT:
        with pytest.raises(TooLarge):
            store(shelf, chunks, path, digest(whole))
    else:
        assert store(shelf, chunks, path, digest(whole)) == len(whole)
        assert path.read_bytes() == whole
    assert [one for one in files(shelf) if one.name.startswith(".")] == []


def test_a_wrong_checksum_leaves_nothing_and_keeps_what_was_there(shelf):
    path = shelf.output_path(5, 1)
    store(shelf, [b"good"], path, digest(b"good"))
    with pytest.raises(InvalidRequest, match="checksum"):
        store(shelf, [b"bad"], path, digest(b"good"))
    assert path.read_bytes() == b"good"
    assert files(shelf) == [path]


@pytest.mark.parametrize(
    "fault", [ConnectionResetError(), asyncio.CancelledError(), InvalidRequest("broke off")]
)
def test_an_upload_that_breaks_off_leaves_nothing(shelf, fault):
    with pytest.raises(type(fault)):
        store(shelf, [b"half"], shelf.output_path(5, 1), digest(b"half of it"), fault)
    assert files(shelf) == []


def test_two_uploads_of_one_file_at_once(shelf):
    path = shelf.input_path("ann", digest(b"same"))

    async def both():
        chunks = [parts([b"sa", b"me"]) for _ in range(4)]
        return await asyncio.gather(*(shelf.store(one, path, digest(b"same")) for one in chunks))

    assert asyncio.run(both()) == [4, 4, 4, 4]
    assert files(shelf) == [path]


@given(st.text(max_size=30), st.text(max_size=30))
def test_names_of_owners_become_no_paths(one, other):
    shelf = Shelf(Path("/shelf"), limit_bytes=1)
    found = shelf.input_path(one, "0" * 64)
    assert found.parent.parent == shelf.root / "in"
    assert ".." not in found.parts
    assert (found == shelf.input_path(other, "0" * 64)) == (one == other)


def test_outputs_of_attempts_do_not_collide(shelf):
    found = {shelf.output_path(job, attempt) for job in (1, 11, 111, 1_000) for attempt in (1, 11)}
    assert len(found) == 8


def test_only_the_server_s_user_may_read(shelf):
    path = shelf.input_path("ann", digest(b"x"))
    store(shelf, [b"x"], path, digest(b"x"))
    assert path.parent.stat().st_mode & 0o077 == 0


# --- on disk, and not in the way of others ------------------------------------------------------------------


def test_a_file_and_its_name_are_on_disk_before_the_answer(shelf, disk):
    done, _ = disk
    path = shelf.output_path(5, 1)
    store(shelf, [b"x"], path, digest(b"x"))
    made = [shelf.root.parent, shelf.root, shelf.root / "out"]
    assert [one for one in done if one[0] == "directory"] == [("directory", p) for p in [*made, path.parent]]
    assert [kind for kind, _ in done[len(made) :]] == ["file", "moved", "directory"]
    done.clear()
    store(shelf, [b"y"], shelf.output_path(6, 1), digest(b"y"))  # the directories are there
    assert [kind for kind, _ in done] == ["file", "moved", "directory"]


def test_the_event_loop_does_not_wait_for_the_disk(shelf, disk):
    _, threads = disk
    store(shelf, [b"x"], shelf.output_path(5, 1), digest(b"x"))
    assert threads
    assert threading.get_ident() not in threads


def test_others_are_served_while_a_file_is_written(shelf, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(number):
        begun.set()
        assert go_on.wait(30)
        real(number)

    monkeypatch.setattr(os, "fsync", slow)
    path = shelf.output_path(5, 1)

    async def work():
        storing = asyncio.create_task(shelf.store(parts([b"x"]), path, digest(b"x")))
        assert await asyncio.to_thread(begun.wait, 30)
        assert not storing.done()
        go_on.set()
        return await storing

    assert asyncio.run(work()) == 1


@pytest.mark.parametrize("at", ["add", "finish"])
def test_one_that_is_cancelled_while_it_is_written_leaves_nothing(shelf, monkeypatch, at):
    monkeypatch.setattr(module, "PORTION", 4)
    begun, go_on = threading.Event(), threading.Event()
    real = getattr(module._Part, at)

    def slow(part, *rest):
        begun.set()
        assert go_on.wait(30)
        real(part, *rest)

    monkeypatch.setattr(module._Part, at, slow)
    content = b"12345678"

    async def work():
        storing = asyncio.create_task(shelf.store(parts([content]), shelf.output_path(5, 1), digest(content)))
        assert await asyncio.to_thread(begun.wait, 30)
        storing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await storing
        go_on.set()

    asyncio.run(work())  # which waits for its threads, too
    assert files(shelf) == []


def test_a_large_file_is_written_in_portions(shelf, monkeypatch):
    monkeypatch.setattr(module, "PORTION", 10)
    written = []
    real = module._Part._write
    monkeypatch.setattr(
        module._Part, "_write", lambda part, data: written.append(len(data)) or real(part, data)
    )
    content = bytes(range(45))
    path = shelf.output_path(5, 1)
    assert store(shelf, [content[at : at + 3] for at in range(0, 45, 3)], path, digest(content)) == 45
    assert path.read_bytes() == content
    assert written == [12, 12, 12, 9]


def test_an_upload_that_is_too_large_never_reaches_the_disk_whole(shelf, monkeypatch):
    monkeypatch.setattr(module, "PORTION", 10)
    with pytest.raises(TooLarge):
        store(shelf, [b"0123456789"] * 6, shelf.output_path(5, 1), "0" * 64)
    assert files(shelf) == []
