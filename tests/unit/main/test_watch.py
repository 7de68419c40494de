"""Live reload: a good change is taken, a bad one is not, nothing happens without a change."""

import os
from types import SimpleNamespace

import msgspec
import pytest

from lodesman.server.config import load_config
from lodesman.server.main.config_watch import ConfigWatch

SITES = '[site.S.ce.C.queue.Q]\nBackend = "local"\nCPUTime = 100\n[group.g]\nvo = "v"\nshare = {share}\n'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "lode.toml").write_text('[resources]\nfiles = ["sites.toml"]\n')
    (tmp_path / "sites.toml").write_text(SITES.format(share=1000))
    return tmp_path


@pytest.fixture
def clock():
    """A clock that the test sets."""
    return SimpleNamespace(now=1_000.0)


@pytest.fixture
def watch(files, clock):
    def load(**more):
        return load_config(files / "lode.toml", **more)

    return ConfigWatch(load(), load, clock=lambda: clock.now)


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


def test_a_bad_change_keeps_the_old_and_is_reported_once(watch, files, caplog):
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


def test_words_of_grid_engine_are_read_again_and_a_fault_has_its_file_and_line(watch, files):
    words = files / "words.txt"
    change(words, "name team\ntype ACL\nentries ann\n")
    change(files / "lode.toml", '[resources]\nfiles = ["sites.toml"]\n[gridengine]\nfiles = ["words.txt"]\n')
    assert watch.poll().vocabulary.user_lists["team"].has("ann")
    assert watch.state.files == tuple(str(files / name) for name in ("lode.toml", "sites.toml", "words.txt"))
    change(words, "name team\ntype ACL\nentries ann\n\nmatlab ml INT << YES YES 0 0\n")
    assert watch.poll() is None
    (fault,) = watch.state.faults
    assert (fault["source"], fault["line"]) == (str(words), 5)
    assert "relop has <<" in fault["message"]
    change(words, "name team\ntype ACL\nentries bob\n")
    assert watch.poll().vocabulary.user_lists["team"].users == {"bob"}
    assert (watch.state.faults, watch.state.refusals, watch.state.reloads) == ((), 1, 2)


def test_a_file_that_vanishes_keeps_the_old(watch, files):
    (files / "sites.toml").unlink()
    assert watch.poll() is None
    change(files / "sites.toml", SITES.format(share=9))
    assert watch.poll().resources.groups["g"].share == 9


# --- what became of it ---------------------------------------------------------------------------------


def names(state):
    return [file.rpartition("/")[2] for file in state.files]


def test_the_state_after_the_start(watch):
    assert names(watch.state) == ["lode.toml", "sites.toml"]
    assert (watch.state.loaded_at, watch.state.refused_at, watch.state.reloads) == (1_000.0, None, 0)
    assert msgspec.to_builtins(watch.state.in_short(1_060.0)) == {
        "loaded_at": 1_000.0, "age_seconds": 60.0, "refused_at": None, "faults": 0,
    }  # fmt: skip


def test_the_state_shows_a_refused_change_until_a_good_one(watch, files, clock):
    clock.now = 2_000.0
    change(files / "sites.toml", '[site.S]\nMaxRAM = "lots"\nCPUTime = "1 parsec"\n')
    assert watch.poll() is None
    state = watch.state
    assert (state.loaded_at, state.refused_at, state.refusals, state.reloads) == (1_000.0, 2_000.0, 1, 0)
    assert [(fault["line"], fault["section"]) for fault in state.faults] == [(2, "site.S"), (3, "site.S")]
    assert state.in_full(3_000.0).age_seconds == 2_000.0
    clock.now = 4_000.0
    change(files / "sites.toml", SITES.format(share=1))
    assert watch.poll() is not None
    state = watch.state
    assert (state.loaded_at, state.refused_at, state.refusals, state.reloads) == (4_000.0, None, 1, 1)
    assert state.faults == ()


def test_going_back_to_what_was_is_a_good_change(watch, files):
    before = (files / "sites.toml").read_text()
    change(files / "sites.toml", "no TOML")
    assert watch.poll() is None
    change(files / "sites.toml", before)
    assert watch.poll() is not None
    assert watch.state.refused_at is None


def test_every_refused_try_is_counted_and_reported(watch, files, caplog):
    for count in (1, 2, 3):
        change(files / "sites.toml", f"no TOML {count}")
        assert watch.poll() is None
        assert watch.state.refusals == count
    assert caplog.text.count("is not used") == 3
    assert caplog.records[-1].faults[0]["line"] == 1


def test_a_file_that_only_the_refused_configuration_names_is_watched(watch, files):
    """To mend that file alone must be enough."""
    (files / "more.toml").write_text("no TOML")
    change(files / "lode.toml", '[resources]\nfiles = ["sites.toml", "more.toml"]\n')
    assert watch.poll() is None
    change(files / "more.toml", '[group.h]\nvo = "v"\n')
    assert set(watch.poll().resources.groups) == {"g", "h"}


def test_a_broken_file_of_the_server_itself_can_be_repaired(watch, files):
    good = (files / "lode.toml").read_text()
    change(files / "lode.toml", "[resources")
    assert watch.poll() is None
    assert names(watch.state) == ["lode.toml", "sites.toml"]
    change(files / "lode.toml", good)
    assert watch.poll() is not None


def test_a_file_that_fits_a_pattern_is_loaded_and_a_removed_one_is_dropped(files):
    (files / "lode.toml").write_text('[resources]\nfiles = ["s*.toml"]\n')

    def load(**more):
        return load_config(files / "lode.toml", **more)

    watch = ConfigWatch(load(), load)
    (files / "some.toml").write_text('[group.h]\nvo = "v"\n')
    assert set(watch.poll().resources.groups) == {"g", "h"}
    assert names(watch.state) == ["lode.toml", "sites.toml", "some.toml"]
    (files / "some.toml").unlink()
    assert set(watch.poll().resources.groups) == {"g"}


def test_a_change_while_the_files_are_read_is_seen_the_next_time(files):
    """The stamps are those from before the reading."""
    late = iter([SITES.format(share=7)])

    def load(**more):
        config = load_config(files / "lode.toml", **more)
        for text in late:
            change(files / "sites.toml", text)
        return config

    watch = ConfigWatch(load_config(files / "lode.toml"), load)
    change(files / "sites.toml", SITES.format(share=3))
    assert watch.poll().resources.groups["g"].share == 3
    assert watch.poll().resources.groups["g"].share == 7
    assert watch.poll() is None


def test_a_change_between_the_first_reading_and_the_watch_is_seen(files):
    def load(**more):
        return load_config(files / "lode.toml", **more)

    config = load()
    change(files / "sites.toml", SITES.format(share=4))
    assert ConfigWatch(config, load).poll().resources.groups["g"].share == 4


def test_notices_are_kept_with_the_state(watch, files):
    change(files / "sites.toml", SITES.format(share=0))
    assert watch.poll() is not None
    of_files, of_set_up = watch.state.notices
    assert of_files["message"].startswith("share: a share below")
    assert "takes a job that says no CPUTime" in of_set_up["message"]


def test_what_needs_a_new_start_is_named(watch, files, caplog):
    caplog.set_level("INFO")
    change(
        files / "lode.toml",
        "[server]\nport = 1\n[pilots]\nidle_seconds = 5\n[director]\nPollingTime = 3\npilotsPerIteration = 2\n",
    )
    assert watch.poll() is not None
    waiting = ("director.PollingTime", "server.port", "pilots.idle_seconds")
    assert watch.state.at_next_start == waiting
    assert caplog.records[-1].at_next_start == waiting
    change(files / "lode.toml", '[resources]\nfiles = ["sites.toml"]\n')
    assert watch.poll() is not None
    assert watch.state.at_next_start == ()
