"""`lode output`: archives of any kind, and what of them reaches the disk."""

import errno
import gzip
import hashlib
import io
import os
import random
import tarfile
import time
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import TooLarge
from lodesman.user.access import outputs as unpacking
from lodesman.user.access.outputs import DamagedArchive, _refusal, unpack


def archive(*members, compress=True):
    """A tar.gz of (name, content) or TarInfo."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, content = member
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0) if compress else raw.getvalue()


def special(name, kind, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.fixture
def unpacked(tmp_path):
    """Unpack bytes into a fresh directory."""

    def run(data, most_bytes=1 << 20):
        file = tmp_path / "archive.tar.gz"
        file.write_bytes(data)
        return unpack(file, tmp_path / "out", most_bytes=most_bytes), tmp_path / "out"

    return run


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_files_and_directories_come_out(unpacked):
    done, out = unpacked(archive(("std.out", b"hello\n"), ("plots/a/b.png", b"png"), ("empty", b"")))
    assert contents(out) == {"std.out": b"hello\n", "plots/a/b.png": b"png", "empty": b""}
    assert (done.files, done.bytes, done.left_out) == (3, 9, [])


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        (0o755, 0o755),
        (0o6755, 0o755),
        (0o600, 0o600),
        (0o644, 0o644),
        (0o666, 0o666),
        (0o7777, 0o777),
        (0, 0o600),
    ],
)
def test_a_file_may_be_what_it_could_be_where_it_was_made_but_setuid(unpacked, mode, kept):
    program = tarfile.TarInfo("run.sh")
    program.mode = mode
    _, out = unpacked(archive(program))
    assert (out / "run.sh").stat().st_mode & 0o7777 == kept & ~_umask()


@pytest.mark.parametrize(
    ("modified", "kept"), [(1_000, 1_000), (0, None), (-5, None), (1 << 40, None), (float("nan"), None)]
)
def test_a_file_has_its_time_of_change_but_of_the_future(unpacked, modified, kept):
    file, before = tarfile.TarInfo("data"), time.time()
    file.mtime = modified
    if isinstance(modified, float):
        file.mtime, file.pax_headers = 5, {"mtime": "nan"}
    _, out = unpacked(archive(file))
    found = (out / "data").stat().st_mtime
    assert found == kept if kept else before - 5 < found < time.time() + 5


def _umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..", "/", "."])
def test_names_that_lead_out_are_left_out(unpacked, tmp_path, name):
    done, out = unpacked(archive((name, b"evil"), ("good", b"good")))
    assert contents(out) == {"good": b"good"}
    assert done.left_out == [{"name": name, "reason": "its name leads out of the directory"}]
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_what_is_no_plain_file_is_left_out(unpacked, kind):
    done, out = unpacked(archive(special("odd", kind, "/etc/passwd"), ("good", b"good")))
    assert contents(out) == {"good": b"good"}
    assert done.left_out == [{"name": "odd", "reason": "it is not a plain file"}]
    assert not (out / "odd").is_symlink()


def test_a_link_is_no_way_out(unpacked, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    done, out = unpacked(archive(special("door", tarfile.SYMTYPE, str(outside)), ("door/file", b"x")))
    assert list(outside.iterdir()) == []
    assert contents(out) == {"door/file": b"x"}
    assert len(done.left_out) == 1


@pytest.mark.parametrize(
    "members",
    [
        [("a", b"1"), ("a", b"2")],
        [("a", b"1"), ("a/b", b"2")],
        [("a/b", b"1"), ("a", b"2")],
        [("a", b"1"), special("a", tarfile.DIRTYPE)],
    ],
)
def test_one_name_twice_is_refused(unpacked, members):
    with pytest.raises(DamagedArchive, match=r"twice|as a file and as a directory"):
        unpacked(archive(*members))


def test_a_bomb_is_stopped(unpacked, tmp_path):
    with pytest.raises(TooLarge, match="--max-mb"):
        unpacked(archive(("zeros", b"\0" * (3 << 20))), most_bytes=1 << 20)
    assert contents(tmp_path / "out") == {}


def test_too_many_files_are_stopped(unpacked, monkeypatch):
    monkeypatch.setattr(unpacking, "MOST_FILES", 3)
    with pytest.raises(TooLarge, match="more than 3 files"):
        unpacked(archive(*((str(n), b"") for n in range(4))))


WHOLE = archive(("a", random.Random(5).randbytes(5_000)), ("b", b"text" * 500))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        WHOLE[:20],
        WHOLE[:3_000],
        WHOLE[:10] + b"\xff" * 500,
        gzip.compress(b"no tar" * 400, mtime=0),
    ],
    ids=["empty", "no gzip", "head", "cut", "noise", "no tar"],
)
def test_a_damaged_archive_is_an_error(unpacked, data):
    with pytest.raises(DamagedArchive, match="damaged"):
        unpacked(data)


@given(st.binary(max_size=2_000), st.integers(0, 10_500))
def test_any_bytes_are_files_or_one_of_our_errors(tmp_path_factory, noise, place):
    folder = tmp_path_factory.mktemp("any")
    tar = bytearray(archive(("a", b"x" * 5_000), ("b", b"y" * 3_000), compress=False))
    tar[place : place + len(noise)] = noise
    file = folder / "archive"
    file.write_bytes(gzip.compress(bytes(tar), 1))
    try:
        unpack(file, folder / "out", most_bytes=1 << 20)
    except (DamagedArchive, TooLarge):
        pass
    except OSError as fault:
        assert fault.errno in (36, 22, 84)  # noqa: PT017  # a name too long, or one that no disk takes
    assert {path.name for path in folder.iterdir()} <= {"archive", "out"}


@given(st.text(max_size=40))
def test_a_name_that_is_taken_stays_below(name):
    path = PurePosixPath(name)
    if not _refusal(path):
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert os.path.normpath(f"/base/{path}").startswith("/base/")


def header(kind, size, content=b"", name="x"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    blocks = content + bytes(-len(content) % 512)
    return info.tobuf(tarfile.GNU_FORMAT) + blocks


MB = 1 << 20
LONG = header(tarfile.GNUTYPE_LONGNAME, 3 * MB, b"a" * (3 * MB))
FILE = header(tarfile.REGTYPE, 0)


@pytest.mark.parametrize(
    "tar",
    [
        header(tarfile.GNUTYPE_LONGNAME, 1 << 33),
        header(tarfile.XHDTYPE, 5 * MB, b"a" * (5 * MB)),
        LONG + LONG + FILE,
        header(tarfile.XGLTYPE, 12, b"12 ab=cdefg\n") * 5_000 + FILE,
        header(tarfile.GNUTYPE_LONGNAME, 2, b"a\0") * 2_000 + FILE,
    ],
    ids=["claimed", "pax", "one behind the other", "global ones", "small ones"],
)
def test_a_header_has_little_memory(unpacked, tar):
    """An archive of 3 MB once took 6 GB: tarfile reads a header's extensions whole."""
    with pytest.raises(DamagedArchive, match="damaged"):
        unpacked(gzip.compress(tar + bytes(1_024), 1), most_bytes=1 << 40)


@pytest.mark.slow
def test_headers_count_as_what_they_unpack_to(unpacked):
    with pytest.raises(TooLarge, match="--max-mb"):
        unpacked(
            gzip.compress((LONG + special("a", tarfile.SYMTYPE, "b").tobuf()) * 4, 1), most_bytes=10 * MB
        )


def test_a_member_of_negative_size_is_damage(unpacked):
    info = tarfile.TarInfo("x")
    info.size = -512
    with pytest.raises(DamagedArchive, match="negative"):
        unpacked(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(2_048)))


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "two\nlines", "d/\x7f", "c1\x9b31m", "exe\u202etxt.sh"])
def test_names_that_steer_a_terminal_are_left_out(unpacked, name):
    done, out = unpacked(archive((name, b"x"), ("caf\xe9", b"good")))
    assert contents(out) == {"caf\xe9": b"good"}
    assert done.left_out == [{"name": name, "reason": "its name has control characters"}]


@pytest.mark.parametrize(
    "name", ["lode-data/run/url", "a/Lode-Data/admin.token", "lode-data", ".lode_request", "b/.LODE_request"]
)
def test_no_server_is_found_in_an_output(unpacked, name):
    """Where a user works, `lode` takes the address of a server from lode-data/run/url."""
    done, out = unpacked(archive((name, b"http://127.0.0.1:6666"), ("good", b"good")))
    assert contents(out) == {"good": b"good"}
    assert [one["name"] for one in done.left_out] == [name]


def test_what_is_left_out_has_limits_too(unpacked, monkeypatch):
    monkeypatch.setattr(unpacking, "_MOST_LEFT_OUT", 3)
    with pytest.raises(DamagedArchive, match="More than 3 entries"):
        unpacked(archive(*(special(str(n), tarfile.SYMTYPE, "b") for n in range(4))))


def test_a_long_name_is_cut_where_it_is_reported(unpacked):
    done, _ = unpacked(archive(special("a" * 2_000, tarfile.SYMTYPE, "b")))
    assert done.left_out[0]["name"] == "a" * 255


# --- the command


@pytest.fixture
def outputs(server, row):
    """Jobs 1 to 4 have output, 5 has none, 6 is damaged on its way."""
    server.jobs = []
    for number in range(1, 7):
        data = archive(("std.out", b"out of %d\n" % number), ("../evil", b"x"))
        job = row(number, state="Done", output_sha256=hashlib.sha256(data).hexdigest(), output_size=len(data))
        if number == 5:
            job.update(state="Failed", output_sha256=None, output_size=None)
        server.jobs.append(job)
        server.on("GET", f"/v1/jobs/{number}/output", b"x" * len(data) if number == 6 else data)

    def answer(asked):
        first, last, limit = (
            int(asked.query.get(name, most)) for name, most in (("first", 1), ("last", 99), ("limit", 1_000))
        )
        return {"jobs": [job for job in server.jobs if first <= job["id"] <= last][:limit]}

    server.on("GET", "/v1/jobs", answer)
    return server


def test_one_directory_per_job(at, outputs, home):
    result = at("output", "1-3", "--dir", "results")
    assert result.code == 0
    assert result.out.splitlines() == [f"results/{n}: 1 file, 9 B" for n in (1, 2, 3)]
    assert contents(home / "results") == {f"{n}/std.out": b"out of %d\n" % n for n in (1, 2, 3)}
    assert "job 1: ../evil was left out" in result.err
    assert not [path for path in (home / "results").iterdir() if path.name.startswith(".")]


def test_what_is_there_is_not_fetched_again(at, outputs, home):
    at("output", "1")
    (home / "1" / "std.out").write_text("mine")
    result = at("output", "1-2")
    assert "1 is there already; --force" in result.err
    assert (home / "1" / "std.out").read_text() == "mine"
    assert at("output", "1", "--force").code == 0
    assert (home / "1" / "std.out").read_text() == "out of 1\n"
    assert sorted(path.name for path in home.iterdir()) == ["1", "2"]


def test_a_job_without_output(at, outputs):
    result = at("output", "5")
    assert (result.code, result.err) == (3, "lode: Job 5 has no output: it is Failed.\n")
    outputs.jobs[4]["output_sha256"] = ""  # its pilot named one that never came
    assert at("output", "5").err == "lode: The output of job 5 was not kept: lode show 5.\n"
    result = at("output", "4-5")
    assert (result.code, "1 job without output" in result.err) == (0, True)


@pytest.mark.parametrize(("state", "cause"), [("Done", "ok"), ("Failed", "exit"), ("Failed", "signal")])
def test_a_job_that_wrote_nothing(at, outputs, home, state, cause):
    outputs.jobs[4].update(state=state, cause=cause)
    result = at("output", "5")
    assert (result.code, result.out) == (0, "5: the job wrote nothing\n")
    assert list((home / "5").iterdir()) == []
    assert at("output", "5-6", "--dir", "more", "--json").json["jobs"][0]["files"] == 0


def test_what_an_output_lacks_is_said_where_it_is_fetched(at, outputs, home):
    empty = archive()
    lacking = "Missing in the output: plots/a (a link that leads out of the job's directory)."
    outputs.jobs[0].update(message=lacking)
    for number, message in ((1, "Missing in the output: std.out (not found)."), (2, None)):
        outputs.jobs[number].update(
            output_sha256=hashlib.sha256(empty).hexdigest(),
            output_size=len(empty),
            message=message,
            state="Failed",
        )
        outputs.on("GET", f"/v1/jobs/{number + 1}/output", empty)
    result = at("output", "1-4")
    assert result.out == "1: 1 file, 9 B\n2: 0 files, 0 B\n3: 0 files, 0 B\n4: 1 file, 9 B\n"
    assert f"job 1: {lacking}\n" in result.err
    assert "job 2: Missing in the output: std.out (not found).\n" in result.err
    assert "job 3: Nothing of it could be packed.\n" in result.err


@pytest.mark.parametrize(
    ("state", "cause"), [("Failed", "not-started"), ("Killed", "killed"), ("Running", None)]
)
def test_a_job_that_did_not_run_to_its_end_has_no_output(at, outputs, state, cause):
    outputs.jobs[4].update(state=state, cause=cause)
    assert at("output", "5").code == 3


def test_a_job_without_output_does_not_stop_the_others(at, outputs, home):
    result = at("output", "1,5,3,77", "--dir", "results")
    assert result.code == 1
    assert "lode: Job 5 has no output: it is Failed." in result.err
    assert "77" in result.err
    assert sorted(path.name for path in (home / "results").iterdir()) == ["1", "3"]
    found = at("output", "5,77", "--json")
    assert [one["id"] for one in found.json["errors"]] == [5, 77]
    assert found.code == 3


def test_a_job_that_is_not_there_either(at, outputs):
    assert at("output", "77").code == 3
    assert at("output", "77-99").code == 3


def test_a_damaged_download_leaves_nothing_and_does_not_stop_the_others(at, outputs, home):
    result = at("output", "4,6", "--dir", "results")
    assert result.code == 1
    assert "job 6: " in result.err
    assert sorted(path.name for path in (home / "results").iterdir()) == ["4"]


def test_an_output_that_is_too_large_when_unpacked(at, outputs, home, monkeypatch):
    data = archive(("zeros", b"\0" * (2 << 20)))
    outputs.jobs[0].update(output_sha256=hashlib.sha256(data).hexdigest(), output_size=len(data))
    outputs.on("GET", "/v1/jobs/1/output", data)
    result = at("output", "1", "--max-mb", "1")
    assert (result.code, list(home.iterdir())) == (1, [])
    assert "--max-mb" in result.err


# --- what does not fit here, and what is there already


def serve(outputs, number, *members):
    data = archive(*members)
    outputs.jobs[number - 1].update(output_sha256=hashlib.sha256(data).hexdigest(), output_size=len(data))
    outputs.on("GET", f"/v1/jobs/{number}/output", data)


@pytest.mark.parametrize("name", ["x" * 256, "/".join(["y" * 250] * 17)])
def test_a_name_that_is_too_long_here_is_a_fault_of_its_job_alone(at, outputs, home, name):
    serve(outputs, 2, ("std.out", b"x"), (name, b"x"))
    result = at("output", "1-3", "--dir", "results")
    assert result.code == 1
    assert result.out == "results/1: 1 file, 9 B\nresults/3: 1 file, 9 B\n"
    assert "job 2: The output cannot be unpacked in results: File name too long" in result.err
    assert sorted(path.name for path in (home / "results").iterdir()) == ["1", "3"]


@pytest.mark.parametrize(
    "number", [errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EILSEQ, errno.EFBIG, errno.EACCES]
)
def test_an_error_of_one_output_does_not_stop_the_others(at, outputs, home, monkeypatch, number):
    fail_in(monkeypatch, 2, number)
    result = at("output", "1-3", "--json")
    assert [one["id"] for one in result.json["jobs"]] == [1, 3]
    assert [(one["id"], one["code"]) for one in result.json["errors"]] == [(2, "damaged-archive")]
    assert (result.code, sorted(path.name for path in home.iterdir())) == (1, ["1", "3"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_no_more_ends_the_command_and_what_is_done_is_said(
    at, outputs, home, monkeypatch, number
):
    fail_in(monkeypatch, 2, number)
    result = at("output", "1-3")
    assert (result.code, result.out) == (1, "1: 1 file, 9 B\n")
    assert result.err.splitlines()[-1].endswith(f"{os.strerror(number)}.")
    as_json = at("output", "1-3", "--force", "--json")
    assert [one["id"] for one in as_json.json["jobs"]] == [1]
    assert "error" in as_json.err
    assert sorted(path.name for path in home.iterdir()) == ["1"]


def fail_in(monkeypatch, job, number):
    """Unpacking the output of this job meets this error."""
    real = unpacking.unpack

    def unpack_or_fail(file, target, **more):
        if f".lode-{job}-" in str(target):
            raise OSError(number, os.strerror(number), str(target / "std.out"))
        return real(file, target, **more)

    monkeypatch.setattr(unpacking, "unpack", unpack_or_fail)


def test_fetched_again_the_files_of_the_user_stay(at, outputs, home):
    serve(outputs, 1, ("std.out", b"new"), ("plots/a.png", b"new"), ("more/b", b"new"))
    (home / "1" / "plots").mkdir(parents=True)
    for name in ("std.out", "plots/a.png", "plots/mine.png", "notes.txt"):
        (home / "1" / name).write_bytes(b"old")
    result = at("output", "1", "--force")
    assert (result.code, result.out) == (0, "1: 3 files, 9 B\n")
    assert "lode: 1: 2 other files stayed there, not of this output.\n" in result.err
    assert contents(home / "1") == {
        "std.out": b"new", "plots/a.png": b"new", "more/b": b"new", "plots/mine.png": b"old", "notes.txt": b"old",
    }  # fmt: skip
    assert [path.name for path in home.iterdir()] == ["1"]


def test_a_file_takes_the_place_of_no_directory_nor_the_other_way_round(at, outputs, home):
    """Nor of a link: nothing is written where it leads."""
    serve(outputs, 1, ("a", b"new"), ("std.out", b"new"))
    serve(outputs, 2, ("a/b", b"new"), ("std.out", b"new"))
    serve(outputs, 3, ("a/b", b"new"), ("std.out", b"new"))
    (home / "1" / "a").mkdir(parents=True)
    (home / "2").mkdir()
    (home / "2" / "a").write_bytes(b"old")
    (home / "elsewhere").mkdir()
    (home / "3").mkdir()
    (home / "3" / "a").symlink_to(home / "elsewhere")
    (home / "4").write_bytes(b"old")
    result = at("output", "1-4", "--force")
    assert (result.code, result.out) == (6, "")
    assert "job 1: 1/a is a directory, and in the output none. Move it away." in result.err
    assert "job 2: 2/a is no directory, and in the output one. Move it away." in result.err
    assert "job 3: 3/a is no directory, and in the output one. Move it away." in result.err
    assert "job 4: 4 is there, and is no directory. Move it away." in result.err
    assert contents(home) == {"2/a": b"old", "4": b"old"}


def test_a_directory_of_a_job_may_be_a_link(at, outputs, home):
    (home / "disk" / "one").mkdir(parents=True)
    (home / "1").symlink_to(home / "disk" / "one")
    assert at("output", "1", "--force").code == 0
    assert contents(home / "disk") == {"one/std.out": b"out of 1\n"}
    assert (home / "1").is_symlink()


def test_json_has_each_job(at, outputs):
    found = at("output", "2-6", "--json").json
    assert [job["id"] for job in found["jobs"]] == [2, 3, 4]
    assert found["jobs"][0]["left_out"] == [
        {"name": "../evil", "reason": "its name leads out of the directory"}
    ]
    assert (found["without_output"], [one["id"] for one in found["errors"]]) == (1, [6])


def test_a_directory_that_cannot_be_made(at, outputs, home):
    (home / "file").write_text("")
    result = at("output", "1", "--dir", "file/below")
    assert result.code in (1, 2)
    assert result.err.startswith("lode: ")
