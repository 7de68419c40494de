"""Live reload: a good change is taken, a bad one is not, nothing happens without a change."""

import os

import pytest

from lodesman.config import load_config
from lodesman.daemon.watch import ConfigWatch

SITES = '[site.S.ce.C.queue.Q]\nBackend = "local"\nCPUTime = 100\n[group.g]\nvo = "v"\nshare = {share}\n'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "lode.toml").write_text('[resources]\nfiles = ["sites.toml"]\n')
    (tmp_path / "sites.toml").write_text(SITES.format(share=1000))
    return tmp_path


@pytest.fixture
def watch(files):
    def load():
        return load_config(files / "lode.toml")

    return ConfigWatch(load(), load)


def change(path, text):
    """Write, and make sure that the time of the change differs however fast the test is."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_nothing_changed(watch):
    assert watch.poll() is None
    assert watch.poll() is None


def test_a_good_change_is_taken_once(watch, files):
    change(files / "sites.toml", SITES.format(share=3000))
    config = watch.poll()
    assert config.resources.groups["g"].share == 3000
    assert watch.poll() is None


def test_a_bad_change_keeps_the_old_and_is_told_once(watch, files, caplog):
    change(files / "sites.toml", "this is no TOML")
    assert watch.poll() is None
    assert "is not used" in caplog.text
    caplog.clear()
    assert watch.poll() is None
    assert caplog.text == ""
    change(files / "sites.toml", SITES.format(share=5))
    assert watch.poll().resources.groups["g"].share == 5


def test_a_file_that_is_named_later_is_watched_too(watch, files):
    change(files / "more.toml", '[group.h]\nvo = "v"\nshare = 7\n')
    change(files / "lode.toml", '[resources]\nfiles = ["sites.toml", "more.toml"]\n')
    assert set(watch.poll().resources.groups) == {"g", "h"}
    change(files / "more.toml", '[group.h]\nvo = "v"\nshare = 8\n')
    assert watch.poll().resources.groups["h"].share == 8


def test_a_file_that_vanishes_keeps_the_old(watch, files):
    (files / "sites.toml").unlink()
    assert watch.poll() is None
    change(files / "sites.toml", SITES.format(share=9))
    assert watch.poll().resources.groups["g"].share == 9
