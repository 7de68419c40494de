"""What the background process takes in of a changed configuration: all of it, or nothing until it can."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.config import load_config
from lodesman.server.main import bootstrap, data_folder
from lodesman.server.main import parts as module
from lodesman.server.main.background import BackgroundProcess, run_background
from lodesman.server.main.parts import BackgroundParts
from lodesman.wire.groups import Arena, KnownUsage, SliceUsage, TimeSlice

SITES = """
[site.W]
VO = ["local", "phys"]
[site.W.ce.c.queue.q]
{lines}
[group.g]
vo = "local"
[group.p]
vo = "phys"
"""
OWN = """
[server]
data = "{data}"
[resources]
files = ["sites.toml"]
[submit_pools]
refresh_seconds = {refresh}
[director]
SubmitPools = "{pool}"
"""
Q = ("W", "c", "q")


def change(path, text):
    """Write, with another time than before however fast the test is."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


class Files:
    """A configuration that the test changes, and the background process that watches it."""

    def __init__(self, folder):
        self.folder = folder
        self.write("Slots = 4")

    def write(self, lines, *, refresh=900, pool="Local"):
        change(self.folder / "sites.toml", SITES.format(lines=lines))
        change(self.folder / "lode.toml", OWN.format(data=self.folder / "data", refresh=refresh, pool=pool))

    def load(self, **more):
        return load_config(self.folder / "lode.toml", **more)

    def start(self):
        config = self.load()
        writer = config.database.writer()
        data_folder.prepare_data(writer, config, now=5.0)
        writer.close()
        return BackgroundParts(config, self.load)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "build_zipapp", lambda target: target.write_bytes(b""))
    return Files(tmp_path)


def in_use(background):
    """What the parts of the process go by."""
    parts = (background, background.director, background.side)
    return (
        background.local.slots,
        {part.policy.digest for part in parts},
        tuple(background.director.options.pools),
        tuple(background.pools.states()),
        background.submit_pools.refresh_seconds,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Slots", "MaxTotalJobs", "NumberOfProcessors"])
def test_any_does_not_keep_it_from_starting(files, name):
    files.write(f"{name} = 'ANY'")
    assert set(files.start().local.slots) == {Q}


@pytest.mark.slow
def test_a_change_to_any_is_taken_in(files):
    background = files.start()
    files.write("Slots = 'ANY'\nMaxTotalJobs = 3", refresh=20, pool="Other")
    background.reload()
    slots, _, *rest = in_use(background)
    assert (slots, rest) == ({Q: 3}, [("Other",), ("Other",), 20.0])


@pytest.mark.slow
def test_a_declaration_for_a_vo_counts_at_the_start_and_after_a_change(files):
    background = files.start()
    assert background.local.slots == {Q: 4}
    files.write("Slots = 4\n[site.W.ce.c.queue.q.vo.local]\nSlots = 1")
    background.reload()
    assert background.local.slots == files.start().local.slots == {Q: 1}


@pytest.mark.slow
def test_a_change_that_fails_changes_nothing_and_is_tried_again(files, monkeypatch):
    background = files.start()
    before = in_use(background)
    files.write("Slots = 7", refresh=20, pool="Other")
    with monkeypatch.context() as broken:
        broken.setattr(module, "find_local_slots", lambda _: {}["unheard of"])
        for _ in range(2):
            with pytest.raises(KeyError):
                background.reload()
            assert in_use(background) == before
    background.reload()
    after = in_use(background)
    assert after[0] == {Q: 7}
    assert len(after[1]) == 1
    assert after[1] != before[1]
    assert after[2:] == (("Other",), ("Other",), 20.0)
    background.reload()
    assert in_use(background) == after


@pytest.mark.slow
def test_each_batch_system_elsewhere_is_polled_and_asked_what_it_would_run(files):
    background = files.start()
    files.write("Backend = 'slurm'")
    background.reload()
    found = {loop.name: loop for loop in background.loops.loops}
    assert {"poll slurm", "forget slurm", "list-match slurm"} <= found.keys()
    assert not any(name.endswith(" local") for name in found)
    assert found["list-match slurm"].step() == 0, "nothing is wanted"


@pytest.mark.slow
def test_a_batch_system_that_has_pilots_is_polled_from_the_start(files, monkeypatch):
    """Whether it is configured or not any more."""
    files.start()
    files.write("Backend = 'slurm'")
    files.start()
    monkeypatch.setattr(module, "backends_of_pilots", lambda _: {"slurm"})
    for setting in ("Backend = 'slurm'", "Backend = 'local'"):
        files.write(setting)
        background = files.start()
        assert {"poll slurm", "list-match slurm"} <= {loop.name for loop in background.loops.loops}
        assert background.director.list_match is background.list_match


@pytest.mark.slow
def test_what_is_known_of_usage_outlasts_a_change_of_the_configuration(files):
    background = files.start()
    usage = KnownUsage(
        at=5.0, currency="starts", most=5.0, owners={}, arenas=[Arena(["local"], ["a", "b"])],
        slices=[SliceUsage(TimeSlice(), {"a": 3.0, "b": 1.0}, {})],
    )  # fmt: skip
    background.policy.set_usage(usage)
    files.write("Slots = 7")
    with (files.folder / "lode.toml").open("a") as file:
        file.write("\n[shares]\ncorrector = 'usage'\n")
    background.reload()
    assert background.usage.options.corrector == "usage"
    assert background.side.policy.drawn_share("a") < 1000 < background.side.policy.drawn_share("b")


@pytest.mark.slow
def test_shares_by_command_hold_from_the_start_and_after_a_change_of_the_files(files):
    def change(what, share):
        writer = files.load().database.writer()
        values = (what, share)
        writer.execute(
            "INSERT INTO group_change (at, grp, change, share, account, by, reason) VALUES (1, 'g', ?, ?, '', 'ann', 'x')",
            values,
        )
        writer.close()

    files.start()
    change("share-set", 7)
    background = files.start()
    assert background.policy.shares()["g"].share == 7
    files.write("Slots = 7")
    background.reload()
    assert (background.local.slots, background.director.policy.shares()["g"].share) == ({Q: 7}, 7)
    change("share-reset", None)
    background.reload()
    assert background.policy.shares()["g"].share == 1000
    change("share-set", 8)
    background.director = SimpleNamespace(db=background.director.db, tick=lambda _: None)
    for watch in background.backends.watches.values():
        watch.polled.set()
    process = BackgroundProcess.__new__(BackgroundProcess)
    process.parts = background
    process._direct()
    assert background.policy.shares()["g"].share == 8


def test_without_its_database_it_ends_with_a_sentence(files, monkeypatch):
    for name in ("start_logging", "hide_process"):
        monkeypatch.setattr(f"lodesman.server.main.background.{name}", lambda *_: None)
    url = "postgresql://nobody@/nothing?host=/nowhere"
    config = load_config(None, overrides={"server": {"data": str(files.folder)}, "store": {"url": url}})
    data_folder.run_directory(config).mkdir()
    data_folder.write_file(data_folder.run_directory(config) / data_folder.SERVICE_FILE, "token")
    with pytest.raises(Unavailable, match="The database nothing at /nowhere cannot be reached"):
        run_background(lambda **_: config)
