"""What each attribute of Grid Engine's jobs is in a description, as data (docs/how-to/gridengine.md shows it)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from lodesman.languages.jobs.attributes import KEPT

_KEPT_WORD: Final = "kept, no meaning"


class Meaning(Struct, frozen=True, kw_only=True):
    """What an attribute is here: attributes of a description, or `kept, no meaning`, and a remark in plain words.

    `name` is an attribute, or `l_hard` and a resource behind a blank.
    """

    name: str
    here: str
    remark: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether it has no meaning here."""
        return self.here == _KEPT_WORD


def _table(text: str) -> tuple[Meaning, ...]:
    rows = ([cell.strip() for cell in line.split("|")] for line in text.strip().splitlines())
    return tuple(Meaning(name=name, here=here or _KEPT_WORD, remark=remark) for name, here, remark in rows)


# In the order in which a class prints them; an empty second column: kept.
MEANINGS: Final = _table("""
A | | Usage is booked to the owner and the group.
a | | Submit it when it shall run, with at or cron.
ar | | There are no advance reservations.
b | | Executable is always a program or script that the job can start.
binding | | A pilot gives its cores to jobs as they come.
c_interval | | There are no checkpoints.
c_occasion | | There are no checkpoints.
CMDNAME | Executable |
CMDARG | Arguments |
ckpt | | There are no checkpoints.
ac | any attribute of your own | One whose name means something here stays in GridEngine.
cwd | | Each job has a directory of its own.
dl | | There are no deadlines: kill it by then.
e | StdError | A host in front of the path is dropped.
h | Held | It is stored Held until it is released, whatever the letter but n: lode release JOB.
hold_jid | | After, or AfterOk, names jobs of this server by their ids.
hold_jid_ad | | AfterOk = "12-511:index" names the jobs of an array by their ids.
i | StdInput | A host in front of the path is dropped.
j | | The same name for StdOutput and StdError joins the two.
js | | Priority is the only order among your own jobs.
l_hard | Consumables | name=amount of each resource but the following.
l_hard h_rt | WallTime | In seconds; INFINITY and 0 are no limit.
l_hard h_cpu | CPUTime | In seconds; INFINITY is 1000000000.
l_hard h_vmem | Memory | For each core, rounded up to MB, where Memory is for all: see below. INFINITY is 0.
l_hard mem_free | Consumables, Memory | Memory, too, if a class, verifier or option gives it to a job without h_vmem.
l_hard virtual_free | Consumables, Memory | Memory, too, if a class, verifier or option gives it to a job without h_vmem.
l_hard slots | NumberOfProcessors | One with pe_range, which wins.
l_soft | | Requests are hard, or they are left out.
m | | No mail is sent: lode status.
mbind | | A pilot gives its memory to jobs as they come.
M | | No mail is sent: lode status.
masterq | | A job runs on one node.
N | JobName |
notify | | No signal comes before the end.
now | | A job waits until it can run.
o | StdOutput | A host in front of the path is dropped.
P | JobGroup | One of the projects of the server, if it has any.
p | Priority | Below 0 is Priority 0, 0 is 1, and 1 to 1024 are 2 to 10 in nine equal steps.
pe_name | PE |
pe_range | NumberOfProcessors | Of a range the smallest number.
q_hard | Requirements.QueueName | Names alone; with a host or a pattern it is kept.
q_soft | | Queues are not ranked.
R | | Nothing is reserved for a single job.
r | MaxAttempts | n is 1, y is 3.
S | | Executable names its own interpreter.
shell | | No shell starts the job.
t | Parameters, ParameterStart, ParameterStep |
V | | The variables of the shell stay where they are: name each one with v.
v | Environment | One without a value is empty.
masterl | | A job runs on one node.
rou | | Usage is reported at the end of each attempt.
tc | | AtMost says it in a description.
xd | | Let the Executable start the container.
par | | A job runs on one node.
rdi | | There are no detailed scheduling messages to ask for: lode why JOB.
umask | | Files of a job have the umask of its pilot.
""")
REMARKS: Final[Mapping[str, str]] = {one.name: one.remark for one in MEANINGS}
IS_KEPT: Final = frozenset(one.name for one in MEANINGS if one.is_kept)
# What may also stand in GridEngine: values that the attributes here cannot hold; Held is a state.
PARTLY_KEPT: Final = frozenset({"ac", "h", "q_hard"})
HERE: Final[Mapping[str, str]] = {one.name: one.here for one in MEANINGS if not one.is_kept}

MEMORY: Final = "h_vmem"
FREE_MEMORY: Final = ("mem_free", "virtual_free")
"""Memory that a host must have, beside the limit `h_vmem` of the job."""
SLOTS: Final = "slots"
HOLD, BY_USER = "h", "u"
"""The attribute of a hold, and the letter of a user's."""
FIELDS: Final = ("h_rt", "h_cpu", MEMORY)
"""The resources that have an attribute of their own."""
FILES: Final = ("e", "i", "o")
SCALARS: Final = ("CMDNAME", "N", "P", "p", "pe_name", "pe_range", "r")


def path_of(attribute: str, key: str | None) -> str:
    """The attribute of a description (a part of it behind a dot) that a value of Grid Engine is in."""
    if attribute == "l_hard" and key in (*FIELDS, SLOTS):
        return HERE[f"l_hard {key}"]
    if attribute not in HERE:
        return f"{KEPT}.{attribute}"
    if attribute == "ac" and key:
        return key
    here = HERE[attribute].partition(",")[0]
    return f"{here}.{key}" if key and attribute in ("l_hard", "v") else here
