"""Sentences for people, all of them: a number and its noun agree."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

import lodesman

HOME = Path(lodesman.__file__).parent
PLURAL = re.compile(
    r" (?:(?:waiting|running|usable|live|idle|busy|free|other|more|such|task|CE|job|eligible|configured|private) ){0,2}"
    r"(?:jobs|pilots|queues|attempts|sites|hosts|times|steps|tokens|submissions|slots|values|members|accounts|tasks|files)\b"
)
# What is above a limit of 1 or more, or is shown of several only.
MANY = {
    "server/http/hosts.py": {"len(same)"},
    "server/engines/isolation.py": {"accounts"},
    "user/cli/commands/jobs.py": {"described.jobs"},
    "user/cli/commands/plan.py": {"rate"},
    "user/cli/commands/task_queues.py": {"key.pilot_type"},
    "server/writer/accounts.py": {"len(hashes)"},
    "server/writer/order.py": {"len(own_rows)"},
    "decide/director/limits.py": {"count"},
    "decide/director/record.py": {"kind"},
    "languages/jobs/jdl.py": {"self.limits.nodes"},
    "languages/jobs/cfg_form.py": {"most"},
    "languages/jobs/members.py": {"members.count"},
    "languages/jobs/record.py": {"limits.nodes"},
    "site/jobstatus/simulate_command.py": {"jobs"},
    "site/jobstatus/vacate/history.py": {"before.at_cap"},
    "decide/matching/index.py": {"waiting", "n", "queue.waiting"},  # faults of the program
    "user/python/jobs.py": {"len(self)"},
    "user/cli/job_options.py": {"count"},  # above a million
    "languages/directives/script_request.py": {"count"},
    "languages/jobclass/editing.py": {"count"},
    "languages/jobs/selection.py": {"budget.most", "self.most"},
    "server/store/read/job_filter.py": {"count"},
    "decide/resources/expression.py": {"len(value)"},
    "server/store/read/job_ends.py": {"most"},
}


def uncounted(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and value of each text in which a value stands before a noun in the plural, whatever the number is."""
    chosen = {
        id(text) for one in ast.walk(tree) if isinstance(one, ast.IfExp) and ast.unparse(one.test).strip("'").endswith("1")
        for text in ast.walk(one.orelse)
    }  # fmt: skip
    found = []
    for text in ast.walk(tree):
        for value, words in pairwise(text.values if isinstance(text, ast.JoinedStr) else ()):
            if not isinstance(value, ast.FormattedValue) or not isinstance(words, ast.Constant):
                continue
            name = ast.unparse(value.value)
            is_known = (
                id(text) in chosen
                or isinstance(value.value, ast.IfExp)
                or name.startswith("counted(")
                or name.rpartition(".")[2].isupper()
            )
            if PLURAL.match(str(words.value)) and not is_known:
                found.append((value.lineno, name))
    return found


@pytest.mark.slow
def test_a_number_agrees_with_its_noun():
    """`1 pilots`: `errors.counted` writes both."""
    wrong = []
    for file in sorted(HOME.rglob("*.py")):
        name = str(file.relative_to(HOME))
        lines = uncounted(ast.parse(file.read_text()))
        wrong += [f"{name}:{line}: {value}" for line, value in lines if value not in MANY.get(name, ())]
    assert wrong == []


def test_such_texts_are_seen():
    texts = ["f'{n} pilots live'", "f'of {n.x:,} waiting jobs'", "f'{n} CE queues: {k}'"]
    assert [len(uncounted(ast.parse(text))) for text in texts] == [1, 1, 1]
    fine = ["f'{counted(n, \"job\")} of its jobs'", "f'{_MOST} jobs'", "f'{n} of them'", "f'{n} jobstatus'"]
    assert [uncounted(ast.parse(text)) for text in fine] == [[], [], [], []]


def test_a_line_that_is_said_has_no_line_end(nodes):
    """`say` and `note` would write it out, as one that others wrote."""
    wrong = [
        (name, call.lineno)
        for name, found in nodes.items()
        for call in found
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("say", "note")
        if any(isinstance(one, ast.Constant) and "\n" in str(one.value) for one in ast.walk(call))
    ]
    assert wrong == []
