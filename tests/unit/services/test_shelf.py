"""Files on the shelf: what is announced is what lies there, and nothing else stays."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.errors import InvalidRequest, TooLarge
from lodesman.services.sandboxes import Shelf

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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
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
    shelf = Shelf(__import__("pathlib").Path("/shelf"), limit_bytes=1)
    found = shelf.input_path(one, "0" * 64)
    assert found.parent.parent == shelf.root / "in"
    assert ".." not in found.parts
    assert (found == shelf.input_path(other, "0" * 64)) == (one == other)


def test_outputs_of_attempts_do_not_collide(shelf):
    found = {shelf.output_path(job, attempt) for job in (1, 11, 111, 1_000) for attempt in (1, 11)}
    assert len(found) == 8


def test_only_the_server_s_user_may_look(shelf):
    path = shelf.input_path("ann", digest(b"x"))
    store(shelf, [b"x"], path, digest(b"x"))
    assert path.parent.stat().st_mode & 0o077 == 0
