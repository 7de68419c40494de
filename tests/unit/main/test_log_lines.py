"""A log that repeats itself is counted, and written once a minute."""

from __future__ import annotations

import io
import json
import logging

import pytest

from lodesman.server.main.log_lines import JsonLines, SteadyHandler


@pytest.fixture
def log():
    handler, out = SteadyHandler(ticks=lambda: log.now), io.StringIO()
    handler.setStream(out)
    handler.setFormatter(JsonLines("hot"))
    log = logging.getLogger("a.log")
    log.propagate = False
    log.now = 100.0
    log.addHandler(handler)

    def lines():
        found = [json.loads(line) for line in out.getvalue().splitlines()]
        out.seek(0)
        out.truncate()
        return found

    log.lines = lines
    log.minute_over = lambda: handler.write_counted(begun_before=log.now - 60.0)
    log.end = handler.close
    yield log
    log.removeHandler(handler)


def test_a_line_that_repeats_is_written_once_a_minute_with_its_count(log):
    for second in range(1000):
        log.now = 100.0 + second / 20
        log.error("no files are left", extra={"step": "backend"})
    log.minute_over()
    assert [line["message"] for line in log.lines()] == ["no files are left"]
    log.now = 161.0
    log.minute_over()
    (counted,) = log.lines()
    assert (counted["message"], counted["step"], counted["repeated"]) == ("no files are left", "backend", 999)
    log.minute_over()
    log.error("no files are left", extra={"step": "backend"})
    assert [line.get("repeated") for line in log.lines()] == [None]


@pytest.mark.slow
def test_lines_that_name_other_things_are_written_up_to_a_hundred(log):
    for number in range(5_000):
        log.warning("pilot %s is silent", number)
    assert len(log.lines()) == 100
    log.now = 161.0
    log.minute_over()
    assert [(line["message"], line["repeated"]) for line in log.lines()] == [("pilot 4999 is silent", 4_900)]


def test_what_differs_is_not_counted_as_the_same(log):
    for step in ("a", "b"):
        log.error("a step failed", extra={"step": step})
    log.warning("a step failed", extra={"step": "a"})
    assert len(log.lines()) == 3


def test_what_was_left_out_is_written_at_the_end_and_keeps_no_trace(log):
    for _ in range(3):
        try:
            raise ValueError
        except ValueError:
            log.exception("failed")
    log.end()
    first, counted = log.lines()
    assert "trace" in first
    assert counted["repeated"] == 2
    assert "trace" not in counted


def test_what_cannot_be_put_into_words_is_no_fault_of_who_logs_it(log, capsys):
    class Wordless(Exception):
        def __str__(self):
            raise ValueError

        __repr__ = __str__

    (handler,) = [one for one in log.handlers if isinstance(one, SteadyHandler)]
    for words in ({"args": (Wordless(),)}, {"fault": Wordless()}, {"args": ("x",)}):
        handler.handle(logging.makeLogRecord({"name": "a.log", "msg": "it failed: %s", **words}))
    assert [line["message"] for line in log.lines()] == ["it failed: x"]
    assert capsys.readouterr().err.count("--- Logging error ---") == 2
