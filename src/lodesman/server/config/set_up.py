"""What a configuration says that can be read and may not work, and what becomes of each queue. It is said, not refused."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from itertools import compress, groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from msgspec import Struct

from lodesman.decide.matching.offers import SUBMISSION_POOLS, Pools, QueueOffer, not_sent, offers_of
from lodesman.decide.resources import LOCAL, MANUAL, TYPES, Fault, FilePosition, QueueTable, fold
from lodesman.decide.resources.load_toml import line_of, lines_of
from lodesman.languages.jobs import JobSpec
from lodesman.server.config.backends import queues_of_backends
from lodesman.server.config.server_config import ServerConfig
from lodesman.wire.client import address_of, is_every_address, is_loopback, parse_server
from lodesman.wire.client.exchange import trusted_authorities

_TURNS: Final = 20  # of a handshake, which needs about four
_MINUTE: Final = 60
_SHOWN: Final = 3


def set_up_notices(config: ServerConfig) -> list[Fault]:
    """Each with its line and what to do. The certificate is tried, so its files are read."""
    messages = [*_addresses(config), *_certificate(config), *_leases(config)]
    of_options = [_at(config, tuple(option.split(".")), message) for option, message in messages]
    return [*of_options, *_missing_files(config), *_short_queues(config)]


_Found = tuple[str, str]  # option and message


def _at(config: ServerConfig, path: tuple[str, ...], message: str) -> Fault:
    file = "configuration" if config.path is None else str(config.path)
    line = line_of(lines_of(config.texts.own), path)
    return Fault(message=message, source=FilePosition(file=file, section=".".join(path[:-1]), line=line))


def _addresses(config: ServerConfig) -> Iterator[_Found]:
    """Of the address that pilots get: it must not mean their own node."""
    server, url = config.server, config.pilot_url
    away = {
        name: queue for name, queue in queues_of_backends(config.resources).items() if name in config.backends
    }
    which = ", ".join(f"{'/'.join(queue)} ({name})" for name, queue in sorted(away.items())[:_SHOWN])
    if is_every_address(server.host) and not server.public_url:
        fault = f"the server listens on every address and gives pilots and users {url}, which is their own machine"
        remedy = f'set public_url to the name by which they reach this one: public_url = "https://NAME:{server.port}"'
        yield "server.host", f"{fault}; {remedy}"
    elif away and (is_loopback(host := parse_server(url).host) or is_every_address(host)):
        option = "public_url" if server.public_url else "host"
        fault = (
            f"pilots in {which} would be given {url}, which is their own node unless they run on this machine"
        )
        remedy = "let public_url be the address by which nodes reach this server"
        if option == "host":
            remedy = "listen where nodes reach it (host, tls_certificate, tls_key) and set public_url to that address"
        yield f"server.{option}", f"{fault}; {remedy}"
    if away and not server.port and not server.public_url:
        fault = (
            f"port 0 is another one at each start, and pilots in {which} that wait would ask at the old one"
        )
        yield "server.port", f"{fault}; set a port"


def _certificate(config: ServerConfig) -> Iterator[_Found]:
    server = config.server
    if not server.tls_certificate or (is_every_address(server.host) and not server.public_url):
        return
    name = parse_server(config.pilot_url).host
    refusal = _refusal(server.tls_certificate, server.tls_key, name)
    if refusal:
        kind = "DNS" if address_of(name) is None else "IP"
        fault = f"pilots and users are given {config.pilot_url} and would refuse {server.tls_certificate}: {refusal}"
        remedy = f"make one that is good now and has subjectAltName = {kind}:{name}, or let public_url have a name of it"
        yield "server.tls_certificate", f"{fault}; {remedy}"


def _refusal(certificate: str, key: str, name: str) -> str:
    """Why a client that trusts a certificate would refuse it for a name, or ""."""
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(certificate, key, password=lambda: b"")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusted_authorities(certificate).wrap_bio(to_client, to_server, server_hostname=name)
    server = here.wrap_bio(to_server, to_client, server_side=True)
    for turn in range(_TURNS):
        try:
            (server if turn % 2 else client).do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as wrong:
            return wrong.verify_message.rstrip(".")
    return ""


def _missing_files(config: ServerConfig) -> Iterator[Fault]:
    written = {
        path[1].lower(): path[1] for path in lines_of(config.texts.own) if path[0] == "backend" and path[1:]
    }
    for name, section in config.backends.items():
        for option in (
            ("identity", "certificate", "key", "token_file", "ca")
            if name in written and not section.renew
            else ()
        ):
            file = getattr(section, option)
            if file and _is_missing(file):
                message = f"{option}: there is no file {file}, so {name} cannot be asked; put it there, or correct its name"
                yield _at(config, ("backend", written[name], option), message)


def _is_missing(file: str) -> bool:
    try:
        Path(file).expanduser().stat()
    except FileNotFoundError:
        return True
    except (OSError, RuntimeError):  # it is hidden, or there is no HOME
        return False
    return False


def _leases(config: ServerConfig) -> Iterator[_Found]:
    lease, heartbeat = config.pilots.lease_seconds, config.pilots.heartbeat_seconds
    if lease <= heartbeat:
        fault = f"pilots send a heartbeat each {heartbeat:g} s and are lost {lease:g} s after one, with all their jobs"
        yield "pilots.lease_seconds", f"{fault}; let lease_seconds be several times heartbeat_seconds"


def _short_queues(config: ServerConfig) -> Iterator[Fault]:
    """VOs of which no queue is as long as a job that says nothing of its time."""
    needed = JobSpec(executable="").norm_cpu_seconds
    if any("h_cpu" in str(value) for value in config.job_classes.defaults.values()):
        return
    vos_of: dict[str, list[str]] = {}
    longest: dict[str, tuple[QueueOffer, Fault]] = {}
    for vo in sorted(config.resources.vos):
        table = QueueTable(config.resources, vo)
        offers = offers_of(table, vo, life_seconds=config.pilots.life_seconds)
        best = max(offers, key=lambda queue_offer: queue_offer.request.norm_cpu_seconds, default=None)
        if best is not None and best.request.norm_cpu_seconds < needed:
            name = "/".join(best.queue)
            vos_of.setdefault(name, []).append(vo)
            longest.setdefault(name, (best, _cause(config, table, best)))
    for name, (best, cause) in longest.items():
        seconds, vos = best.request.norm_cpu_seconds, vos_of[name]
        of = f"VO{'s' * (len(vos) > 1)} {', '.join(vos)}"
        fault = f"no queue of {of} takes a job that says no CPUTime, which then is {needed} s"
        why = f"the longest, {name}, has {seconds} s of it by {cause.message}"
        remedy = "make it longer"
        if seconds >= _MINUTE:
            default = f'[job_classes.defaults] l_hard = "h_cpu={seconds}"'
            remedy = f"let jobs say CPUTime (lode submit --cpu-time {seconds // _MINUTE}m), or set {default}"
        yield Fault(message=f"{fault}: {why}; {remedy}", source=cause.source)


def _cause(config: ServerConfig, table: QueueTable, offer: QueueOffer) -> Fault:
    settings, params = offer.settings, table.params(offer.bit)
    names = (
        ["CPUTime", "maxCPUTime"]
        if settings.norm_cpu_seconds == offer.request.norm_cpu_seconds
        else ["WallTime"]
    )
    for name in names:
        param = params.get(fold(name))
        life = config.pilots.life_seconds
        if param is not None and (name != "WallTime" or not life or (settings.wall_seconds or life) <= life):
            return Fault(message=f"its {name}", source=param.source or FilePosition())
    return _at(config, ("pilots", "life_seconds"), f"life_seconds = {config.pilots.life_seconds} of [pilots]")


# --- what becomes of each queue -----------------------------------------------------------------------------


class QueueOutlook(Struct, frozen=True, kw_only=True):
    """What becomes of one queue, for the VOs that see it so."""

    queue: str
    vos: list[str]
    pilots: str
    fault: bool  # pilots would stay away by mistake


def queue_outlooks(config: ServerConfig) -> list[QueueOutlook]:
    """Every configured queue, in their order."""
    table, names = QueueTable(config.resources, ""), config.backend_names
    pools = config.director.scopes
    kinds_of: dict[str, dict[tuple[str, bool], list[str]]] = {
        "/".join(queue): {} for queue in table.queues.values()
    }
    for vo in sorted(config.resources.vos):
        life = config.pilots.life_seconds
        for offer in offers_of(QueueTable(config.resources, vo), vo, life_seconds=life):
            kinds_of["/".join(offer.queue)].setdefault(_pilots(offer, names, pools), []).append(vo)
    return [
        QueueOutlook(queue=queue, vos=vos, pilots=text, fault=fault)
        for queue, kinds in kinds_of.items()
        for (text, fault), vos in (kinds or {("none: no configured VO may use it", False): []}).items()
    ]


def _pilots(offer: QueueOffer, names: Collection[str], pools: Pools) -> tuple[str, bool]:
    settings, backend = offer.settings, offer.backend
    without = not_sent(offer, names, pools)
    if backend == MANUAL:
        return "by hand: others start them", False
    if without is not None:
        unknown = backend not in names
        wrong = unknown or without.parameter == SUBMISSION_POOLS
        near = get_close_matches(backend, (*names, *TYPES), 1) if unknown else ()
        return f"none: {without.text}{f' (perhaps {near[0]} is meant)' if near else ''}", wrong
    ways = (not settings.generic_pilots, settings.push, settings.forwards)
    name = ", ".join([backend, *compress(("private pilots only", "push", "forwards"), ways)])
    if backend != LOCAL:
        return f"{name}: as its batch system and the caps of the queue allow", False
    most = settings.max_total_jobs if settings.slots is None else settings.slots
    at_once = "as many at once as this machine has cores for" if most is None else f"{most} at once"
    cores = settings.processors or 1
    return f"{name}: {at_once}, {cores} core{'s' * (cores != 1)} each", False


def mistakes(config: ServerConfig, queues: list[QueueOutlook]) -> Iterator[str]:
    """What is wrong though each value by itself can be read; sentences without a full stop."""
    python = config.pilots.python
    is_used = not queues or any(queue.pilots.startswith((f"{LOCAL}:", f"{LOCAL},")) for queue in queues)
    if is_used and shutil.which(python) is None:
        yield f"pilots.python: there is no program {python!r}, and local pilots could not start"
    for text, alike in groupby(
        sorted((queue.pilots, queue.queue) for queue in queues if queue.fault), itemgetter(0)
    ):
        first, *others = [queue for _, queue in alike]
        which = f"{first} and {len(others)} more" if others else first
        yield f"{which}: no pilots are sent there: {text.removeprefix('none: ')}"
