"""The section [shares] of the server's file: off by default, DIRAC's names, and every fault with its place."""

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.server.config import load_config
from lodesman.server.main.config_watch import changed_options
from lodesman.wire.groups import TimeSlice


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "lode.toml"
        path.write_text(text)
        return load_config(path)

    return read


def faults(read, text):
    with pytest.raises(InvalidConfig) as caught:
        read(text)
    return [(fault["section"], fault["line"], fault["message"]) for fault in caught.value.data["faults"]]


def test_no_corrector_unless_asked(read):
    shares = read("").shares
    assert (shares.corrector, shares.currency, shares.most) == ("none", "starts", 5.0)
    (week,) = shares.slices
    assert (week.time_span, week.weight, week.max_correction) == (604_800.0, 1.0, 3.0)


def test_all_options(read):
    shares = read("""
[shares]
corrector = "usage"
currency = "core-seconds"
MaxGlobalCorrectionFactor = 4
[[shares.slices]]
[[shares.slices]]
TimeSpan = 86400
Weight = 2
MaxCorrection = 1.5
""").shares
    assert (shares.corrector, shares.currency, shares.most) == ("usage", "core-seconds", 4.0)
    assert shares.slices == (TimeSlice(), TimeSlice(86_400.0, 2.0, 1.5))


@pytest.mark.parametrize(("text", "word"), [
    ('corrector = "history"', "corrector"),
    ('currency = "jobs"', "currency"),
    ("MaxGlobalCorrectionFactor = 0.5", "MaxGlobalCorrectionFactor"),
    ("slices = []", "slices"),
    ("slices = [{TimeSpan = 5}]", "TimeSpan"),
    ("slices = [{Weight = 0}]", "Weight"),
    ("slices = [{MaxCorrection = 0.9}]", "MaxCorrection"),
    ("slices = [{MaxCorrection = nan}]", "MaxCorrection"),
    ("slices = [{MaxCorection = 2}]", "MaxCorection"),
    ("MaxGlobalCorrection = 2", "did you mean MaxGlobalCorrectionFactor?"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(read, text, word):
    ((section, line, message),) = faults(read, f"[shares]\n{text}")
    assert (section, line) == ("shares", 2)
    assert word in message


def test_usage_is_not_known_for_longer_than_jobs_are_kept(read):
    short = "[server]\nkeep_days = 5\n[shares]\n"
    ((section, _, message),) = faults(read, short + 'corrector = "usage"')
    assert section == "shares"
    assert "keep_days = 5" in message
    assert read(short).shares.corrector == "none"
    assert read("[server]\nkeep_days = 0\n[shares]\ncorrector = 'usage'").shares.corrector == "usage"


def test_a_running_server_takes_them_in(read):
    assert changed_options(read(""), read("[shares]\ncorrector = 'usage'")) == ()
