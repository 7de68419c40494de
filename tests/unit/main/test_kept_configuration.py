"""A process that is started while the files are refused uses the configuration that was kept."""

from __future__ import annotations

import stat
from functools import partial

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.server.config import Texts, load_config
from lodesman.server.main.config_watch import ConfigWatch, keep_texts, kept_file, load_or_kept

GOOD = "[site.S.ce.c.queue.q]\nCPUTime = 100\n[group.g]\nshare = 5\n"
CFG = "Registry\n{\nVO\n{\nv\n{\n}\n}\n}\n"


@pytest.fixture
def home(tmp_path):
    (tmp_path / "lode.toml").write_text(
        '[resources]\nfiles = ["*.cfg", "sites.toml"]\n[director]\nextraPilots = 9\n'
    )
    (tmp_path / "sites.toml").write_text(GOOD)
    (tmp_path / "vos.cfg").write_text(CFG)
    (tmp_path / "lode-data" / "run").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def load(home):
    return partial(load_config, home / "lode.toml")


@pytest.fixture
def kept(load):
    config = load()
    keep_texts(kept_file(config), config)
    return kept_file(config)


def test_good_files_are_used_and_nothing_is_refused(load, kept, home):
    (home / "sites.toml").write_text(GOOD.replace("5", "6"))
    config, refused = load_or_kept(load, kept)
    assert (config.resources.groups["g"].share, refused) == (6, None)


def test_only_its_owner_reads_what_is_kept(kept, home):
    assert kept == home / "lode-data" / "run" / "configuration.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sites.toml", "no TOML"),
        ("sites.toml", "[site.S]\nMaxRAM = 'lots'\n"),
        ("lode.toml", "[resources"),
        ("lode.toml", '[resources]\nfiles = ["gone.toml"]\n'),
        ("vos.cfg", "VO {"),
        ("more.cfg", "VO {"),
    ],
)
def test_refused_files_are_replaced_by_what_was_kept(load, kept, home, file, text):
    before = load()
    (home / file).write_text(text)
    config, refused = load_or_kept(load, kept)
    assert config.resources.groups["g"].share == 5
    assert config.director.extra_pilots == 9
    assert config.resource_files == before.resource_files
    assert config.resources.vos == before.resources.vos
    assert str(home / file) in str(refused) or "gone.toml" in str(refused)


def test_a_file_that_is_gone(load, kept, home):
    (home / "sites.toml").unlink()
    assert load_or_kept(load, kept)[0].resources.groups["g"].share == 5


def test_without_something_kept_the_fault_is_raised(load, kept, home):
    (home / "sites.toml").write_text("no TOML")
    for nothing in (None, home / "nowhere.json"):
        with pytest.raises(InvalidConfig, match=r"sites.toml, line 1"):
            load_or_kept(load, nothing)
    kept.write_text('{"own": 5')
    with pytest.raises(InvalidConfig, match=r"sites.toml, line 1"):
        load_or_kept(load, kept)


def test_the_watch_begins_with_the_refusal_and_loads_the_repaired_files(load, kept, home):
    (home / "lode.toml").write_text('[resources]\nfiles = ["sites.toml", "more.toml"]\n')
    (home / "more.toml").write_text("no TOML")
    config, refused = load_or_kept(load, kept)
    watch = ConfigWatch(config, load, refused=refused, clock=lambda: 7.0)
    assert (watch.state.refused_at, watch.state.loaded_at, len(watch.state.faults)) == (7.0, 7.0, 1)
    assert watch.poll() is None
    (home / "more.toml").write_text("[group.h]\n")
    assert set(watch.poll().resources.groups) == {"g", "h"}
    assert watch.state.refused_at is None


def test_a_full_disk_costs_a_line_in_the_log(load, home, caplog):
    config = load()
    keep_texts(home / "nowhere" / "configuration.json", config)
    assert "cannot be kept" in caplog.text


def test_texts_are_read_instead_of_the_files(load, home):
    texts = Texts(own="[director]\nextraPilots = 3\n", files={str(home / "x.toml"): "[group.x]\n"})
    config = load(texts=texts)
    assert (config.director.extra_pilots, set(config.resources.groups)) == (3, {"x"})
    assert config.texts == texts
