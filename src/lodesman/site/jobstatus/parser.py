"""The command line's parser: its faults are one plain sentence that says what to do."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

_FAULTS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"argument COMMAND: invalid choice: (.+) \(choose from (.+)\)", r"\1 is no command: write \2."),
        (
            r"argument \[?(\w+)\]?: invalid choice: (.+) \(choose from (.+)\)",
            r"\2 is not known here; only \3 is.",
        ),
        (r"argument (\S+): invalid choice: (.+) \(choose from (.+)\)", r"\1: \2 is none of \3."),
        (r"argument (\S+): expected (?:one|at least one) argument", r"\1: its value is missing."),
        (r"argument (\S+): ignored explicit argument .*", r"\1 takes no value."),
        (r"argument (\S+): (.+?)\.?", r"\1: \2."),
        (r"unrecognized arguments: (.+)", r"\1: there is no such option or argument."),
        (r"the following arguments are required: (.+)", r"\1 is missing."),
    )
)

_CHOICE = re.compile(r"argument \[?\w+\]?: invalid choice: '(.*)' \(choose")
_OPTION = re.compile(r"--?[A-Za-z]")

# A word of a list of them, as `'kill', 'drain'`.
_QUOTED = re.compile(r"(?:(?<=: write )|(?<=only )|(?<=none of )|(?<=, ))'([\w-]+)'")


def in_plain_words(fault: str) -> str:
    """What argparse says of a wrong command line, as a sentence."""
    for pattern, words in _FAULTS:
        if match := pattern.fullmatch(fault):
            return _QUOTED.sub(r"\1", match.expand(words))
    return f"{fault.rstrip('.')}."


class PlainParser(argparse.ArgumentParser):
    """It says what is wrong, and leaves the usage to --help."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; the words are kept for `error`."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._given, namespace)

    def error(self, message: str) -> NoReturn:
        """Names the unknown option that stands before an unknown word. Raises SystemExit 2."""
        match = _CHOICE.match(message)
        if match and match[1] in self._given:
            last = len(self._given) - 1 - self._given[::-1].index(match[1])
            names = [word.partition("=")[0] for word in self._given[:last] if _OPTION.match(word)]
            unknown = [name for name in names if name not in self._option_string_actions]
            message = f"unrecognized arguments: {unknown[0]}" if unknown else message
        self.exit(2, f"{self.prog}: {in_plain_words(message)} See: {self.prog} --help\n")
