"""What a job submission verifier sees of a submission. Pure.

A parameter at its default is not sent, so that a script learns whether the user gave it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from lodesman.base.errors import InvalidJob

VERSION: Final = "1.0"
JOB_CLASS: Final = "jc"
READ_ONLY: Final = frozenset({"CLIENT", "CONTEXT", "GROUP", "JOB_ID", "USER", "VERSION"})
BOOLEANS: Final = frozenset({"b", "j", "notify", "shell", "R", "r"})
# The real parser reads these as whole numbers.
NUMBERS: Final = frozenset(
    "binding_amount binding_core binding_exp_n binding_socket binding_step js p pe_max pe_min "  # noqa: SIM905 - words
    "t_max t_min t_step tc".split()
)
_TASKS: Final = ("t_min", "t_max", "t_step")

# In the order in which they are sent: the name, and the text at which it is not sent because it is the default.
DEFAULTS: Final[Mapping[str, str]] = {
    JOB_CLASS: "", "a": "", "ac": "", "ar": "0", "A": "", "b": "n", "c_interval": "", "c_occasion": "", "ckpt": "",
    "cwd": "", "dl": "", "e": "", "hold_jid": "", "hold_jid_ad": "", "h": "n", "i": "", "j": "n", "js": "0",
    "l_hard": "", "l_soft": "", "m": "n", "M": "", "masterq": "", "notify": "n", "N": "", "o": "", "P": "", "p": "0",
    "tc": "0", "binding_strategy": "no_job_binding", "binding_type": "", "binding_amount": "", "binding_socket": "",
    "binding_core": "", "binding_step": "", "binding_exp_n": "", "pe_name": "", "pe_min": "", "pe_max": "",
    "q_hard": "", "q_soft": "", "R": "n", "r": "n", "shell": "y", "S": "", "t_min": "", "t_max": "", "t_step": "",
    "w": "n", "display": "",
}  # fmt: skip
# What the usual libraries forget by themselves between two jobs: the names of Grid Engine 8.1.
CLEARED: Final = DEFAULTS.keys() - {JOB_CLASS}
_RANK: Final = {name: rank for rank, name in enumerate(DEFAULTS)}
_CORES: Final = re.compile(r"binding_exp_(socket|core)([0-9]{1,4})")
ARGUMENT: Final = re.compile(r"CMDARG([0-9]{1,6})")

# What ends a line, and what is no text of a line. A NUL would also be dropped by shells.
_NOT_IN_LINE: Final = re.compile(r"[\n\x00\ud800-\udfff]")
_SHELL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = str.maketrans(
    {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b", "\v": "\\v", "\x00": ""}
)


class JsvContext(StrEnum):
    """Where a script runs."""

    CLIENT = "client"  # before the submission leaves the user
    SERVER = "server"


class Parameters(Struct, frozen=True, kw_only=True):
    """A submission as scripts see it."""

    context: JsvContext
    user: str
    group: str
    client: str = "qsub"  # the submitting command; scripts compare it
    job_id: int = 0  # 0: there is none yet
    command: str = ""  # '': there is none
    arguments: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)  # all else, by name
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def job_class(self) -> str:
        """As `app` or `app.variant`; empty without one."""
        return self.values.get(JOB_CLASS, "")


def is_known(name: str) -> bool:
    """Whether a script may set it; the rest is ignored, as by the real parser."""
    return name in _RANK or _CORES.fullmatch(name) is not None


def check_parameters(parameters: Parameters) -> None:
    """Raises InvalidJob, with the `attribute` whose text cannot stand in one line."""
    head = {"CLIENT": parameters.client, "USER": parameters.user, "GROUP": parameters.group}
    texts = [*head.values(), parameters.command, *parameters.arguments, *parameters.values.values()]
    whole = "".join(texts)
    if whole.isascii() and "\n" not in whole and "\x00" not in whole:
        return  # nearly always
    arguments = {f"CMDARG{number}": argument for number, argument in enumerate(parameters.arguments)}
    for name, text in {**head, "CMDNAME": parameters.command, **arguments, **parameters.values}.items():
        _check_line(name, text)


def parameter_lines(parameters: Parameters, *, forget: Collection[str] = ()) -> list[str]:
    """The lines `PARAM name value`, in the order of the real client, of checked parameters.

    `forget`: names of earlier jobs, sent empty if this one lacks them, since libraries keep what they do not know.
    """
    head = [
        ("VERSION", VERSION),
        ("CONTEXT", parameters.context),
        ("CLIENT", parameters.client),
        ("USER", parameters.user),
        ("GROUP", parameters.group),
    ]
    if parameters.job_id:
        head.append(("JOB_ID", str(parameters.job_id)))
    head += (("CMDNAME", parameters.command or "NONE"), ("CMDARGS", str(len(parameters.arguments))))
    head += [(f"CMDARG{number}", argument) for number, argument in enumerate(parameters.arguments)]
    sent = _given(parameters.values)
    for name in forget:
        sent.setdefault(name, "")
    place = _RANK.__getitem__ if sent.keys() <= _RANK.keys() else _place
    pairs = [*head, *((name, sent[name]) for name in sorted(sent, key=place))]
    return [f"PARAM {name} {text}" for name, text in pairs]


def _given(values: Mapping[str, str]) -> dict[str, str]:
    sent = {name: text for name, text in values.items() if text and text != DEFAULTS.get(name)}
    if not sent.keys().isdisjoint(_TASKS) and all(sent.get(name, "1") == "1" for name in _TASKS):
        return {name: text for name, text in sent.items() if name not in _TASKS}
    return sent


def _place(name: str) -> tuple[int, int, int]:
    rank = _RANK.get(name)
    if rank is not None:
        return rank, 0, 0
    core = _CORES.fullmatch(name)
    if core:
        return _RANK["binding_exp_n"], 1 + int(core[2]), int(core[1] == "core")
    return len(_RANK), 0, 0


def environment_lines(environment: Mapping[str, str]) -> list[str]:
    """The lines `ENV ADD name value`; only control characters are escaped. Raises InvalidJob for what is not Unicode.

    Names that no shell has (exported functions of bash) are left out.
    """
    lines = []
    for name, text in environment.items():
        if _SHELL_NAME.fullmatch(name):
            line = text.translate(_ESCAPES)
            _check_line(name, line)
            lines.append(f"ENV ADD {name} {line}")
    return lines


def _check_line(name: str, text: str) -> None:
    bad = _NOT_IN_LINE.search(text)
    if bad is None:
        return
    fault = "a newline" if bad[0] == "\n" else f"the character U+{ord(bad[0]):04X}"
    raise InvalidJob(
        f"The value of {name} has {fault}; a JSV gets each value in one line.",
        hint="Remove it, or put the text into a file of the job.",
        attribute=name,
    )
