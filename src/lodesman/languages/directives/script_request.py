"""What the lines of one batch system ask for: attributes, notes, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lodesman.languages.directives.amounts import MOST_INDEXES, SplitLine, split_list, strip_quotes, whole


class Obstacle(NamedTuple):
    """Why an option cannot be had."""

    reason: str  # The end of a sentence that the option begins.
    hint: str  # What to do.


WHERE: Final = (
    "it names a place or an account of another cluster: --site, --tag and --group say where and for whom"
)
MAIL: Final = "no mail is sent: lode wait, lode status"
FOLDER: Final = "each job begins in an empty folder of its own, with the files that it takes along (--files)"
RIGHTS: Final = "umask in the script says which rights its files get"
SHELL: Final = "nothing of your shell's environment goes along: --env NAME"
PLACES: Final = "a job runs on one node, which places its processes itself"
COUNTS: Final = "it changes nothing of what the job does"
WEIGHT: Final = "--set Priority=N, 0 to 10, orders your own jobs"
IDS: Final = Obstacle(
    "names jobs of another batch system, which this server cannot know.",
    "Give ids that lode submit printed: --after-ok 12-20, or --after.",
)
GPU: Final = Obstacle(
    "asks for GPUs, which are not counted here yet.",
    "A tag may name queues that have them: --tag NAME.",
)
HOSTS: Final = Obstacle(
    "names hosts of another cluster.",
    "Say where it may run (--site, --tag, --set GridCE=NAME), or where not: --set BannedSite=NAME.",
)
NODES: Final = Obstacle(
    "asks for several nodes; a job runs on one node.",
    "If one node will do, ask for all cores there: --cores N.",
)
LATER: Final = Obstacle("says when it begins or ends.", "Submit it when it shall run, with at or cron.")
RESOURCE: Final = Obstacle(
    "is a resource of another cluster.",
    "If this server has it (lode quota resources): --set Consumables=NAME=AMOUNT.",
)
VIRTUAL: Final = Obstacle(
    "limits virtual memory, which is not set here.", "Say how much memory it needs: --memory 4G."
)
PROPERTY: Final = Obstacle(
    "asks for a property of nodes.",
    "A tag may name it: --tag NAME; or --set Requirements=...",
)
SIGNAL: Final = Obstacle("asks for a signal before the end; there is none.", "")
STAGED: Final = Obstacle("has files copied.", "Take files along: --files; bring them back: --keep.")
ALONE: Final = Obstacle(
    "asks for a node of its own, which no job gets.", "Ask for all cores of a node: --cores N."
)
ATTENDED: Final = Obstacle("asks for a terminal; jobs have none.", "")
CHECKPOINT: Final = Obstacle("asks for checkpoints, which are not made here.", "")
_UNCLOSED: Final = Obstacle("has a quote that is never closed.", "")
_CONTINUED: Final = Obstacle(
    "ends with a backslash, and such lines are not continued.",
    "Leave it out, and begin the next line as this one.",
)
UNKNOWN: Final = Obstacle("is not known here.", "")
NO_VALUE: Final = Obstacle("has no value.", "Give it one, or leave it out.")
UNREAD: Final = "cannot be read as that system would."


class ScriptOption(NamedTuple):
    """An option of a line, as it is written."""

    line: int
    words: str  # As they are written.


class LineRefusal(NamedTuple):
    """An option that cannot be had."""

    option: ScriptOption
    reason: str
    hint: str
    unless: tuple[str, ...] = ()  # Attributes that say it here.


_MINUTE: Final = 60
_NONE_AT_ONCE: Final = Obstacle(
    "lets none of its jobs run at a time.",
    "Leave %0 out if all may, or say how many: --array 1-100%10.",
)
_LITTLE_MB, _MANY = 32, 100
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?(?!x)")
_LISTED: Final = Obstacle(UNREAD, "Say each variable: --env NAME=VALUE.")
_TORN: Final = Obstacle(
    "has a comma in quotes or behind a backslash, where that system ends the value.",
    "Say each variable: --env NAME=VALUE.",
)
_SAID_BY: Final = {
    GPU: ("Tag", "Requirements", "Consumables"),
    NODES: ("NumberOfProcessors",),
    ALONE: ("NumberOfProcessors",),
    PROPERTY: ("Tag", "Requirements"),
    HOSTS: ("Site", "GridCE", "Tag", "Requirements", "BannedSite"),
    RESOURCE: ("Consumables",),
    VIRTUAL: ("Memory",),
}


class ScriptRequest:
    """Attributes with the same meaning here, and all else that the lines say."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.files: dict[str, str] = {}  # Names of streams as that system writes them.
        self.environment: dict[str, str] = {}
        # By reason and option, the parts of it; all of it if there is none.
        self.notes: dict[str, dict[str, list[str]]] = {}
        self.part, self.size = "", 1
        self.taken: dict[str, str] = {}  # How an option was read, by the attribute that it gives.
        self.refusals: list[LineRefusal] = []
        self.kept: dict[str, tuple[ScriptOption, str]] = {}  # Values that only mean something together.
        self.hold = False
        self.joined = False  # Both streams go to one file, whatever its name.
        self.endless = ""  # The option that asks for any time.
        self.job_class = ""
        self.interpreter = ""
        self.option = ScriptOption(0, "")
        self.given_cores = 0  # Those that the user says, 0 if none.
        # Words of the line at hand whose commas mean something else in a list than in the line.
        self.torn: set[str] = set()

    def note(self, reason: str) -> None:
        """The option at hand, or the `part` of it, has no effect."""
        parts = self.notes.setdefault(reason, {}).setdefault(self.option.words, [])
        parts += [self.part] if self.part and self.part not in parts else []
        if len(parts) == self.size:
            parts.clear()

    def without_effect(self) -> Iterator[str]:
        """Options, or parts, without effect, with the reason."""
        for reason, options in self.notes.items():
            texts = [f"{', '.join(parts)} of {words}" if parts else words for words, parts in options.items()]
            yield f"without effect: {', '.join(texts)}: {reason}."

    def parts(self, texts: Iterable[str]) -> Iterator[str]:
        """Parts of the option at hand, one by one: notes are about the current one."""
        pieces = list(filter(None, map(str.strip, texts)))
        for piece in pieces:
            self.part, self.size = (piece, len(pieces)) if len(pieces) > 1 else ("", 1)
            yield piece
        self.part, self.size = "", 1

    def refuse(self, obstacle: Obstacle, *unless: str, option: ScriptOption | None = None) -> None:
        """Refuse an option (the one at hand) unless these attributes say it."""
        unless = unless or _SAID_BY.get(obstacle, ())
        self.refusals.append(LineRefusal(option or self.option, *obstacle, unless))

    def slots(self, own: int) -> int:
        """The cores that each core's amounts are for: the user's, else the lines'."""
        return self.given_cores or own

    def put(self, name: str, value: object) -> None:
        """None is a text that cannot be read."""
        if value is None:
            self.refuse(Obstacle(UNREAD, f"Say it in an option of lode submit, or as --set {name}=..."), name)
        else:
            self.attributes[name] = value

    def time(self, name: str, seconds: int | None) -> None:
        """Set WallTime or CPUTime in seconds; 0 is any time, None a text that cannot be read."""
        self.taken.pop(name, None)
        if seconds == 0:
            self.endless = self.option.words
            self.attributes.pop(name, None)
        elif seconds and seconds < _MINUTE:
            self.taken[name] = (
                f"{self.option.words}: this is {seconds} seconds; hours would be {seconds}:00:00."
            )
        if seconds != 0 or name == "WallTime":
            self.put(name, seconds)

    def memory(
        self, megabytes: int | None, text: str, *, usual: str = "M", units: Sequence[str] = ("M", "G")
    ) -> None:
        """Set Memory in MB; None or 0 cannot be read. An amount too small for any program is said.

        `usual`: the default unit, '' for bytes.
        """
        self.put("Memory", megabytes if megabytes and megabytes > 0 else None)
        self.taken.pop("Memory", None)
        number = _NUMBER.match(text)
        if number and megabytes and 0 < megabytes < _LITTLE_MB:
            amount = f"{text} bytes" if text == number[0] and not usual else text
            meant = f"{number[0]}{units[float(number[0]) < _MANY]}"
            self.taken["Memory"] = (
                f"{self.option.words}: {amount}, no more than {megabytes} MB in all; did you mean {meant}?"
            )

    def no_array(self) -> None:
        """One job, no array."""
        for name in ("Parameters", "ParameterStart", "ParameterStep", "AtMost"):
            self.attributes.pop(name, None)

    def array(self, indexes: Mapping[str, Any] | None, at_once: str | None = "") -> None:
        """The indexes of an array, and how many jobs run at once; None: that is said apart."""
        most = whole(at_once) if at_once else 0
        limit = self.attributes.get("AtMost") if at_once is None else None
        self.no_array()
        if limit:
            self.attributes["AtMost"] = limit
        if at_once and most == 0:
            self.refuse(_NONE_AT_ONCE, "Parameters")
            return
        if indexes is None or most is None:
            self.refuse(Obstacle(UNREAD, "Say it as --array 1-100%10."), "Parameters")
            return
        count = indexes["Parameters"]
        if isinstance(count, int) and count > MOST_INDEXES:
            words = f"has {count:,} jobs; a submission has at most {MOST_INDEXES:,}."
            self.refuse(
                Obstacle(words, "Submit it in parts, each by an option: --array 1-1000."), "Parameters"
            )
            return
        self.attributes.update(indexes)
        if most:
            self.attributes["AtMost"] = most

    def join(self, kept: str, joined: str, usual: str) -> None:
        """Send both streams to the first one's file."""
        self.files[joined] = self.files.setdefault(kept, usual)
        self.joined = True

    def join_alone(self) -> None:
        """Send errors with the output if only that has a file."""
        if "StdOutput" in self.files and "StdError" not in self.files:
            self.join("StdOutput", "StdError", "")

    def count(self, name: str, usual: int = 0) -> int:
        """A kept whole number from 1; refuse anything else."""
        if name not in self.kept:
            return usual
        option, text = self.kept[name]
        number = whole(text)
        if not number:
            self.refuse(Obstacle(UNREAD, "Say it as --cores N."), "NumberOfProcessors", option=option)
            return usual
        return number

    def variables(self, text: str, *, has_quotes: bool = True) -> None:
        """NAME=VALUE between commas; a name alone, and ALL, are of the user's shell.

        `has_quotes`: quotes in the list hold commas. A comma meant for a value, which the system would not see so, is
        refused.
        """
        items, plain = split_list(text), [*filter(None, text.split(","))]
        torn = "\\," in text or any(word.endswith(text) for word in self.torn)
        if torn or (not has_quotes and items and items != plain):
            self.refuse(_TORN, "Environment")
        elif items is None and has_quotes:
            self.refuse(_UNCLOSED, "Environment")
        else:
            self._set_variables(plain if items is None else items)

    def _set_variables(self, items: Iterable[str]) -> None:
        for part in self.parts(items):
            name, equals, value = strip_quotes(part).partition("=")
            if not name.isidentifier():
                self.refuse(_LISTED, "Environment")
            elif equals:
                self.environment[name] = value
            elif name.upper() not in ("NONE", "NIL"):
                self.note(SHELL)


Handler = Callable[[ScriptRequest, str], None]


def table(groups: Mapping[tuple[int, str], Handler]) -> dict[str, tuple[int, Handler]]:
    """Options by name, from groups: (words that follow, names with blanks between) -> meaning."""
    return {name: (words, handler) for (words, names), handler in groups.items() for name in names.split()}


def gives(name: str, read: Callable[[str], object] = str) -> Handler:
    """The value is an attribute's."""
    return lambda request, text: request.put(name, read(text) if text else None)


def lasts(name: str, read: Callable[[str], int | None]) -> Handler:
    """The value is a time."""
    return lambda request, text: request.time(name, read(text))


def sets(name: str, value: object) -> Handler:
    """An attribute has that value."""
    return lambda request, _: request.put(name, value)


def keeps(name: str) -> Handler:
    """Means something only with other values."""

    def keep(request: ScriptRequest, text: str) -> None:
        request.kept[name] = request.option, text

    return keep


def notes(reason: str) -> Handler:
    """It has no effect here."""
    return lambda request, _: request.note(reason)


def refuses(obstacle: Obstacle, *unless: str) -> Handler:
    """It cannot be had."""
    return lambda request, _: request.refuse(obstacle, *unless)


def stream(name: str) -> Handler:
    """A standard stream's file."""

    def put(request: ScriptRequest, text: str) -> None:
        if text:
            request.files[name] = text
        else:
            request.refuse(NO_VALUE)

    return put


def again(request: ScriptRequest, _text: str) -> None:
    """The job may go back, as any may by default."""
    request.attributes.pop("MaxAttempts", None)
    request.note(COUNTS)


def holds(request: ScriptRequest, _text: str) -> None:
    """Held until it is released."""
    request.hold = True


def shell(request: ScriptRequest, text: str) -> None:
    """The program that reads the script; of several for hosts the first."""
    request.interpreter = text.partition(",")[0].partition("@")[0]
    if len(request.interpreter.split()) != 1:
        request.interpreter = ""
        request.refuse(Obstacle(UNREAD, "Say it in the first line of the script: #!/bin/bash."))


def words_of(request: ScriptRequest, number: int, line: str, *, cuts_words: bool) -> list[str]:
    """Split as by a shell; none, and a refusal, if it is no line of options.

    `cuts_words`: a `#` within a word begins a comment.
    """
    line = line.strip()
    try:
        split = SplitLine(line, cuts_words=cuts_words)
        words, request.torn = split.words, split.torn
    except ValueError:
        words, obstacle = [], _CONTINUED if line.endswith("\\") else _UNCLOSED
    else:
        obstacle = UNKNOWN
    if not words and obstacle == UNKNOWN:
        return []
    if words and words[0].startswith("-"):
        return words
    request.refuse(obstacle, option=ScriptOption(number, line))
    return []


def read_short(
    request: ScriptRequest, options: Mapping[str, tuple[int, Handler]], number: int, line: str, *, joined: bool = True,
    cuts_words: bool = False,
) -> None:  # fmt: skip
    """Read options with one dash; if `joined`, a value may follow without a blank."""
    words = words_of(request, number, line, cuts_words=cuts_words)
    while words:
        name = words.pop(0)
        if joined and name not in options and name[:2] in options and options[name[:2]][0]:
            name, words = name[:2], [name[2:], *words]
        follow, handler = options.get(name, (0, refuses(UNKNOWN)))
        is_short = follow > 0 and not words
        value, words = " ".join(words[:follow]), words[follow:]
        request.option = ScriptOption(number, f"{name} {value}".rstrip())
        request.refuse(NO_VALUE) if is_short else handler(request, value)
