"""The command line's parser, with faults as one plain sentence that says what to do."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

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

# A word of a list of them, as `'kill', 'drain'`.
_QUOTED = re.compile(r"(?:(?<=: write )|(?<=only )|(?<=none of )|(?<=, ))'([\w-]+)'")


def in_plain_words(fault: str) -> str:
    """What argparse says of a wrong command line, as a sentence; other texts are sentences, with or without a full stop."""
    for pattern, words in _FAULTS:
        if found := pattern.fullmatch(fault):
            return _QUOTED.sub(r"\1", found.expand(words))
    return f"{fault.rstrip('.')}."


class PlainParser(argparse.ArgumentParser):
    """It says what is wrong, and not the whole usage, which --help has; so do those of its commands."""

    def error(self, message: str) -> NoReturn:
        """Raises SystemExit 2."""
        self.exit(2, f"{self.prog}: {in_plain_words(message)} See: {self.prog} --help\n")
