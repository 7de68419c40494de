"""Machine/Job Features: what a directory or a web server declares, as it changes."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lodesman.pilot.features import FeatureReader, Features, read_features, reading_s


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.fixture
def both(tmp_path):
    """The environment with both directories."""
    write(tmp_path, **{"m/total_cpu": "8", "j/job_id": "1"})
    return {"MACHINEFEATURES": str(tmp_path / "m"), "JOBFEATURES": str(tmp_path / "j")}


@contextmanager
def web(values):
    """A web server with these values; a value may be a status code."""

    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            value = values.get(self.path.rpartition("/")[2], 404)
            content = value.encode() if isinstance(value, str) else b""
            self.send_response(200 if isinstance(value, str) else value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/features"
    server.shutdown()
    server.server_close()


def test_features(tmp_path, both):
    values = {
        "m/shutdowntime": "2000\n",
        "m/grace_secs": "60",
        "j/allocated_cpu": "4",
        "j/max_rss_bytes": "1e9",
    }
    write(
        tmp_path,
        **values,
        **{"j/wall_limit_secs": "x", "j/shutdowntime_job": "1500", "j/grace_secs_job": "30"},
    )
    assert read_features(both) == Features(
        allocated_cpu=4, max_rss_bytes=10**9, shutdowntime=2000, shutdowntime_job=1500, grace_secs=60, grace_secs_job=30
    )  # fmt: skip


def test_both_spellings_of_allocated_cpu(tmp_path, both):
    write(tmp_path, **{"j/allocated_CPU": "8"})
    assert read_features(both).allocated_cpu == 8
    write(tmp_path, **{"j/allocated_cpu": "4"})
    assert read_features(both).allocated_cpu == 4


@pytest.mark.parametrize("content", ["", "0", "-5", "nan", "inf", "text", "\xff"])
def test_values_that_declare_nothing_are_unknown(tmp_path, content):
    write(tmp_path, allocated_cpu=content)
    assert read_features({"JOBFEATURES": str(tmp_path)}) == Features()


@pytest.mark.parametrize("place", ["", "relative", "ftp://x/y", "http://", "http://[", "/does/not/exist"])
def test_places_that_are_not_read(place):
    assert read_features({"MACHINEFEATURES": place, "JOBFEATURES": place}) == Features()


def test_a_file_that_is_gone_is_withdrawn_and_one_that_cannot_be_read_is_not(tmp_path, both):
    file = tmp_path / "m/shutdowntime"
    write(tmp_path, **{"m/shutdowntime": "2000"})
    known = read_features(both)
    for content in ("", "soon", "nan"):
        file.write_text(content)
        assert read_features(both, known).shutdowntime == 2000
    file.unlink()
    file.symlink_to(file)  # it cannot be opened
    assert read_features(both, known).shutdowntime == 2000
    file.unlink()
    os.mkfifo(file)
    assert read_features(both, known).shutdowntime == 2000
    file.unlink()
    assert read_features(both, known).shutdowntime is None
    # Without the whole directory nothing is known anew.
    (tmp_path / "m").rename(tmp_path / "away")
    assert read_features(both, known).shutdowntime == 2000


def test_features_on_the_web():
    values: dict[str, object] = {"shutdowntime": "2000", "allocated_CPU": "3\n", "wall_limit_secs": "9" * 100}
    with web(values) as place:
        environment = {"MACHINEFEATURES": place, "JOBFEATURES": place}
        known = read_features(environment)
        assert (known.shutdowntime, known.allocated_cpu, known.grace_secs) == (2000, 3, None)
        values["shutdowntime"], values["allocated_CPU"] = 500, "never"
        assert read_features(environment, known) == known
        values["shutdowntime"] = 410
        assert read_features(environment, known).shutdowntime is None
    assert read_features(environment, known) == known  # no one answers


def test_an_answer_that_is_too_long_ends_the_reading():
    known = Features(wall_limit_secs=7, jobstart_secs=8)
    with web({"max_rss_bytes": "5", "wall_limit_secs": "1" * 10**6}) as place:
        found = read_features({"JOBFEATURES": place}, known)
    assert (found.max_rss_bytes, found.jobstart_secs) == (5, 8)


def test_the_earlier_shutdown_counts_unless_it_is_over():
    both = Features(shutdowntime=2000, shutdowntime_job=1500)
    assert both.shutdown(100.0) == 1500
    assert (both.shutdown(1600.0), both.over(1600.0)) == (2000, 1500)
    assert (both.shutdown(3000.0), both.over(100.0)) == (None, None)


def test_end_of_the_slot():
    assert Features().slot_ends(100.0) is None
    assert Features(wall_limit_secs=50).slot_ends(100.0) == 150
    assert Features(wall_limit_secs=50, jobstart_secs=90).slot_ends(100.0) == 140
    assert Features(wall_limit_secs=50, shutdowntime=120).slot_ends(100.0) == 120
    assert Features(wall_limit_secs=50, shutdowntime=99).slot_ends(100.0) == 150


def test_the_reader_reads_again_and_hangs_alone():
    seen: list[Features] = []
    hangs = threading.Event()

    def read(_, known):
        seen.append(known)
        if len(seen) == 3:
            hangs.wait(60)
        return Features(shutdowntime=len(seen))

    reader = FeatureReader({}, read=read)
    assert reader.start(0.001).shutdowntime is not None
    while len(seen) < 3:
        threading.Event().wait(0.001)
    assert reader.latest == seen[2] == Features(shutdowntime=2)
    reader.close()
    hangs.set()


def test_web_servers_are_asked_less_often():
    assert reading_s({"JOBFEATURES": "/run/x"}) == reading_s({}) == 10
    assert reading_s({"JOBFEATURES": "/run/x", "MACHINEFEATURES": "http://x"}) == 60


def test_the_reader_reads_at_once_when_it_is_stirred():
    again = threading.Event()
    values = iter((Features(), Features(shutdowntime=1)))

    def read(*_):
        found = next(values)
        if found.shutdowntime:
            again.set()
        return found

    reader = FeatureReader({}, read=read)
    reader.start(3600.0)
    reader.stir()
    assert again.wait(60)
    reader.close()


def test_the_first_values_are_not_waited_for_for_ever():
    hangs = threading.Event()
    reader = FeatureReader({}, read=lambda *_: hangs.wait(60) and Features(shutdowntime=1))
    assert reader.start(60.0, patience_s=0.01) == Features()
    reader.close()
    hangs.set()
