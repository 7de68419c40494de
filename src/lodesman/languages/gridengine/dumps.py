"""Dumps of a Grid Engine as configuration files: a `qconf` text for each object.

A file has the name of the option, with the object behind a dot: `sc`, `sconf`, `srqs`, `sq.all.q`, `shgrp.@gpu`,
`su.staff`, `sprj.genomics`, `sjc.app`, `sp.smp`, `sul`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from lodesman.base.errors import InvalidConfig, InvalidRequest, SyntaxFault
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.lines import LogicalLine, logical_lines
from lodesman.languages.gridengine.values import ComplexType, read_value
from lodesman.languages.gridengine.vocabulary import Vocabulary

_VOCABULARY: Final = ("sc", "shgrp", "su", "sprj")
_SETTING: Final = re.compile(r"[a-z][a-z0-9_]*")
_ALWAYS: Final = {"sq": ("qname", "hostlist"), "sp": ("pe_name",)}
_OVERRIDE: Final = re.compile(r"\[([^=\[\]]+)=([^\[\]]*)\]")
_NONE: Final = frozenset({"", "NONE", "UNDEFINED", "INFINITY", "FALSE", "0", "default"})
_GROUP: Final = '\n[group.users]\nvo = "local"\nshare = 1000\n'
_LIMITS: Final = {
    "h_rt": ("WallTime", ComplexType.TIME), "h_cpu": ("CPUTime", ComplexType.TIME), "h_vmem": ("MaxRAM", ComplexType.MEMORY),
}  # fmt: skip
_TAKEN: Final = frozenset({"qname", "hostlist", "slots", "jc_list", *_LIMITS})
_IN_CONF: Final = frozenset({"jsv_url", "jsv_allowed_mod", "default_jc", "enforce_jc", "enforce_project"})
# Settings of a queue that change what its jobs may do or meet, and what does that here; all others are Grid Engine's own.
_OF_QUEUES: Final = {
    "user_lists": "a rule for those who are not on it: limit users {NAMES} queues QUEUE to slots=0 (lode quota add)",
    "xuser_lists": "limit users {@LIST} queues QUEUE to slots=0 (lode quota add)",
    "projects": "limit projects {NAMES} queues QUEUE to slots=0 (lode quota add)",
    "xprojects": "limit projects {NAMES} queues QUEUE to slots=0 (lode quota add)",
    "complex_values": "limit queues QUEUE to NAME=AMOUNT (lode quota add)",
    "pe_list": 'pilots of several cores: NumberOfProcessors = N and SubmitOptions = "-pe PE N" in sites.toml',
    "calendar": "lode site close and open, by cron",
    "initial_state": "lode site close",
    "subordinate_list": "lode vacate frees cores for others",
    "prolog": "Grid Engine runs it for each pilot, not for each job",
    "epilog": "Grid Engine runs it for each pilot, not for each job",
    "starter_method": "Grid Engine runs it for each pilot, not for each job",
    "rerun": "jobs whose pilot is lost are tried again: MaxAttempts",
    "s_rt": "there are no soft limits",
    "s_cpu": "there are no soft limits",
    "s_vmem": "there are no soft limits",
    "seq_no": "queues are not ranked by it",
    "d_rt": "jobs give WallTime; a job class can say a usual one",
}
_OF_CONF: Final = {
    "max_u_jobs": "limit users {*} to slots=N limits what runs (lode quota add); what waits is not limited",
    "max_jobs": "limit to slots=N limits what runs (lode quota add); what waits is not limited",
    "user_lists": "users have tokens: lode user add, lode user disable",
    "xuser_lists": "users have tokens: lode user add, lode user disable",
    "projects": "limit projects {NAMES} to slots=0 (lode quota add)",
    "xprojects": "limit projects {NAMES} to slots=0 (lode quota add)",
    "prolog": "Grid Engine runs it for each pilot, not for each job",
    "epilog": "Grid Engine runs it for each pilot, not for each job",
}  # fmt: skip


class UnplacedSetting(Struct, frozen=True, kw_only=True):
    """A setting without a place here."""

    file: str
    setting: str
    reason: str  # What does the same, or that it stays with Grid Engine.


class ConvertedDumps(Struct, frozen=True, kw_only=True):
    """What dumps became."""

    files: Mapping[str, str]  # Configuration files by their paths.
    left_out: tuple[UnplacedSetting, ...]


def convert_dumps(texts: Mapping[str, str], site: str) -> ConvertedDumps:
    """`texts`: by name; `site`: the cluster's name here.

    Raises InvalidRequest if there is no dump; SyntaxFault, with its file, for one that cannot be read.
    """
    dumps = {name: text for name, text in texts.items() if _kind(name)}
    if not dumps:
        hint = "Name each file for its command: qconf -sc > sc, qconf -sq all.q > sq.all.q."
        raise InvalidRequest("There is no dump of qconf in this folder.", hint=hint)
    words = {name: text for name, text in dumps.items() if _kind(name) in _VOCABULARY}
    faults: list[SyntaxFault] = []
    vocabulary = read_vocabulary(words, faults=faults)
    if faults:
        raise faults[0]
    unread = "it is named for no option of qconf that is read"
    left = [
        UnplacedSetting(file=name, setting="the file", reason=unread) for name in texts if name not in dumps
    ]
    files = {f"gridengine/{name}": text for name, text in words.items()}
    if "srqs" in dumps and dumps["srqs"].strip():
        files["quotas.rqs"] = dumps["srqs"]
    files |= {f"classes/{name[4:]}.jc": text for name, text in dumps.items() if _kind(name) == "sjc"}
    queues = [_values(text, name) | {"": name} for name, text in dumps.items() if _kind(name) == "sq"]
    if queues:
        files["sites.toml"] = "".join(_site(queues, site, vocabulary, left))
    conf = _values(dumps.get("sconf", ""), "sconf")
    files["lode.toml"] = "".join(_configuration(files, conf))
    left += [*_of_conf(conf), *_of_environments(dumps), *_missing_lists(dumps, vocabulary)]
    return ConvertedDumps(files=files, left_out=tuple(left))


def _kind(name: str) -> str:
    option, dot, rest = name.partition(".")
    single = option in ("sc", "sconf", "srqs", "sul") and not dot
    return option if single or (option in ("sq", "shgrp", "su", "sprj", "sjc", "sp") and rest) else ""


def _values(text: str, source: str) -> dict[str, str]:
    """An object's settings by name.

    Raises SyntaxFault, also for what no `qconf` prints: a line that is no setting, a setting that comes twice, an
    object of another name, or without the settings of any dump.
    """
    faults: list[SyntaxFault] = []
    settings, lines = dict[str, str](), dict[str, LogicalLine]()
    for line in logical_lines(text, faults=faults, source=source):
        key, _, value = line.text.partition(" ") if "\t" not in line.text else line.text.partition("\t")
        if not _SETTING.fullmatch(key):
            raise line.fault(0, f"{key[:60]!r} is no name of a setting", _hint(source))
        if key in settings:
            raise line.fault(0, f"{key} is given twice, first at line {lines[key].line}", _hint(source))
        settings[key], lines[key] = value.strip(), line
    if faults:
        raise faults[0]
    required = _ALWAYS.get(_kind(source), ())
    for name in required:
        if name not in settings:
            raise SyntaxFault(f"There is no {name}.", line=1, column=1, hint=_hint(source), source=source)
    for name in required[:1]:
        if settings[name] != source.partition(".")[2]:
            message = f"{name} is {settings[name][:60]}, and the file is named {source}"
            raise lines[name].fault(0, message, _hint(source))
    return settings


def _hint(source: str) -> str:
    option, _, name = source.partition(".")
    return f"Make the file anew: qconf -{option}{f' {name}' if name else ''} > {source}"


# --- queues ------------------------------------------------------------------------------------------


def _site(
    queues: Iterable[Mapping[str, str]], site: str, words: Vocabulary, left: list[UnplacedSetting]
) -> Iterator[str]:
    ce = f"site.{_quote(site)}.ce.gridengine"
    yield f'# Queues of Grid Engine: pilots are sent by qsub -q QUEUE.\n[{ce}]\nBackend = "gridengine"\n'
    for queue in queues:
        yield f"\n[{ce}.queue.{_quote(queue['qname'])}]\n"
        try:
            parameters = list(_parameters(queue, words, left))
        except InvalidConfig as fault:
            raise InvalidConfig(f"{queue['']}: {fault.message}", hint=fault.hint) from None
        for parameter, value in parameters:
            yield f"{parameter} = {_quote(value) if isinstance(value, str) else value}\n"
        left += _of_queue(queue)
    yield _GROUP


def _parameters(
    queue: Mapping[str, str], words: Vocabulary, left: list[UnplacedSetting]
) -> Iterator[tuple[str, int | str]]:
    """As in a resource file. Values for single hosts have no place, but for slots."""
    for key, (parameter, kind) in _LIMITS.items():
        base, single = _parts(queue.get(key, ""))
        if single:
            reason = f"{parameter} is one value for the queue; a queue of its own is better for these hosts"
            left.append(UnplacedSetting(file=queue[""], setting=f"{key} {queue[key]}", reason=reason))
        amount = _amount(kind, base)
        if amount:
            yield parameter, amount // 2**20 if kind is ComplexType.MEMORY else amount
    slots = _slots(queue, words)
    if slots is None:
        reason = "Slots in sites.toml: a host group of it is not among the dumps"
        left.append(
            UnplacedSetting(file=queue[""], setting=f"slots {queue.get('slots', '')}".strip(), reason=reason)
        )
    else:
        yield "Slots", slots
    if queue.get("jc_list", "NONE") != "NONE":
        yield "JcList", queue["jc_list"]


def _parts(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Split `4,[node1=8],[@gpu=2]` into the queue's value and those of hosts and groups."""
    return _OVERRIDE.sub("", text).strip(", "), _OVERRIDE.findall(text)


def _amount(kind: ComplexType, text: str) -> int:
    """0 for no limit. Raises InvalidConfig."""
    value = read_value(kind, text) if text not in _NONE else 0
    if not isinstance(value, str) and value < 0:
        raise InvalidConfig(f"{text} is below 0.")
    return int(value) if not isinstance(value, str) and value < math.inf else 0


def _slots(queue: Mapping[str, str], words: Vocabulary) -> int | None:
    """All slots of a queue; None if its hosts are not all known. Of several values for a host the last counts."""
    base, single = _parts(queue.get("slots", "1"))
    slots, by_host = (
        _amount(ComplexType.INT, base),
        [(name, _amount(ComplexType.INT, text)) for name, text in single],
    )
    members = queue.get("hostlist", "").replace(",", " ").split()
    groups = [text for text in (*members, *(name for name, _ in single)) if text.startswith("@")]
    if any(text not in words.host_groups for text in groups) or not members:
        return None
    count = {host: slots for text in members if text != "NONE" for host in _hosts(text, words)}
    for name, amount in sorted(by_host, key=lambda text: not text[0].startswith("@")):
        count |= {host: amount for host in _hosts(name, words) if host in count}
    return sum(count.values())


def _hosts(name: str, words: Vocabulary) -> frozenset[str]:
    return words.hosts_of(name) if name.startswith("@") else frozenset({name.lower()})


# --- what has no place -------------------------------------------------------------------------------


def _of_queue(queue: Mapping[str, str]) -> Iterator[UnplacedSetting]:
    others: list[str] = []
    for key, value in queue.items():
        if not key or key in _TAKEN or (_parts(value)[0] in _NONE and not _parts(value)[1]):
            continue
        if key in _OF_QUEUES:
            yield UnplacedSetting(file=queue[""], setting=f"{key} {value}", reason=_OF_QUEUES[key])
        else:
            others.append(key)
    yield from _stays(queue[""], others)


def _of_conf(conf: Mapping[str, str]) -> Iterator[UnplacedSetting]:
    others: list[str] = []
    for key, value in conf.items():
        if value.lower() in ("none", "0", "false") or key in _IN_CONF:
            continue
        if key in _OF_CONF:
            yield UnplacedSetting(file="sconf", setting=f"{key} {value}", reason=_OF_CONF[key])
        else:
            others.append(key)
    yield from _stays("sconf", others)


def _stays(file: str, settings: list[str]) -> Iterator[UnplacedSetting]:
    if settings:
        yield UnplacedSetting(
            file=file, setting=", ".join(settings), reason="Grid Engine's own: it holds for pilots as before"
        )


def _of_environments(texts: Mapping[str, str]) -> Iterator[UnplacedSetting]:
    for name, text in texts.items():
        if _kind(name) == "sp":
            rule = _values(text, name).get("allocation_rule", "")
            reason = "PE in a job is a name that quota sets may limit; a job has its cores on one node"
            yield UnplacedSetting(file=name, setting=f"allocation_rule {rule}".rstrip(), reason=reason)


def _missing_lists(texts: Mapping[str, str], words: Vocabulary) -> Iterator[UnplacedSetting]:
    for name in texts.get("sul", "").split():
        if name not in words.user_lists:
            yield UnplacedSetting(
                file="sul",
                setting=name,
                reason=f"its users are not among the dumps: qconf -su {name} > su.{name}",
            )


# --- the configuration of the server -----------------------------------------------------------------


def _configuration(files: Iterable[str], conf: Mapping[str, str]) -> Iterator[str]:
    yield "# Sections for the configuration of the server; others stay as they are.\n"
    if "sites.toml" in files:
        yield '\n[resources]\nfiles = ["sites.toml"]\n'
    if any(file.startswith("gridengine/") for file in files):
        yield '\n[gridengine]\nfiles = ["gridengine/*"]\n'
        yield "enforce_project = true\n" if _is_true(conf, "enforce_project") else ""
    default, enforced = conf.get("default_jc", "NONE"), _is_true(conf, "enforce_jc")
    if default.upper() != "NONE" or enforced:
        yield "\n[job_classes]\n"
        yield "" if default.upper() == "NONE" else f"default_jc = {_quote(default)}\n"
        yield "enforce_jc = true\n" if enforced else ""
    if conf.get("jsv_url", "none").lower() != "none":
        yield f"\n[jsv]\nserver = {_quote(conf['jsv_url'])}\n"
        if "jsv_allowed_mod" in conf:
            yield f"allowed_modifications = {_quote(conf['jsv_allowed_mod'])}\n"


def _is_true(conf: Mapping[str, str], name: str) -> bool:
    return conf.get(name, "false").lower() in ("true", "1")


def _quote(text: str) -> str:
    return json.dumps(text)
