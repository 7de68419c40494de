"""Which jobs of a range an action is about: by owner, name, submission, state and what their descriptions say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from lodesman.answers.job_queries import Selection
from lodesman.store import Reader
from lodesman.store.read.described import ANYTHING, Described, check_name, described_as
from lodesman.store.read.jobs import names_in_templates
from lodesman.store.write.jobs import IdBlock


@dataclass(frozen=True)
class Choice:
    """All jobs that are not chosen are passed over: they are neither changed nor refused."""

    owner: str
    name: str = ""
    submissions: Collection[int] = ()
    states: Collection[str] = ()
    described: Described = ANYTHING

    @classmethod
    def of(cls, asked: Selection, user: str) -> Choice:
        """What a user asks for. Raises InvalidRequest."""
        check_name(asked.name)
        states = frozenset(map(str, asked.states))
        return cls(asked.owner or user, asked.name, frozenset(asked.submissions), states, described_as(asked))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        signs = {"*": ".*", "?": "."}
        return re.compile("".join(signs.get(sign) or re.escape(sign) for sign in self.name), re.DOTALL)

    def has(self, block: IdBlock) -> bool:
        """Whether jobs of a submission may be chosen. Those of one without a name have names of their own."""
        if self.submissions and block.submission not in self.submissions:
            return False
        return not self.name or not block.name or self._pattern.fullmatch(block.name) is not None

    def templates(self, db: Reader, block: IdBlock, used: Iterable[int]) -> Collection[int] | None:
        """Those of the templates whose jobs are chosen by their names; None: all."""
        if not self.name or block.name:
            return None
        names = names_in_templates(db, set(used))
        return {number for number, name in names.items() if self._pattern.fullmatch(name or "")}
