"""What `lode submit` does to a description before it is sent: its job class, and the verifiers (JSV) of the user."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lodesman.base.errors import InvalidConfig, InvalidJob, LodesmanError
from lodesman.user.cli.tables import note
from lodesman.user.cli.words import plain

if TYPE_CHECKING:
    from lodesman.decide.submission.resolution import JsvView
    from lodesman.languages.gridengine.complexes import Complexes
    from lodesman.languages.jobs.record import Record
    from lodesman.server.jsv import JsvUrl, ScriptSettings
    from lodesman.user.cli.session import Session
    from lodesman.wire.job_classes import AttributeEdit

REQUEST_FILE: Final = ".lode_request"
CLUSTER_VARIABLE, CLUSTER_FILE = "LODE_REQUEST", "/etc/lodesman/request"
_LONGEST_NAME: Final = 255  # that the server takes
_OPTIONS: Final = {"--jsv": "jsv", "-jsv": "jsv", "--class": "class", "-jc": "class", "--trust": "trust"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What one source asks for."""

    jsv: tuple[str, ...] = ()  # URLs of scripts, in their order
    job_class: str = ""
    trusted: tuple[str, ...] = ()  # folders whose request files may name scripts


def read_request(text: str, source: str) -> RequestOptions:
    """Read `--jsv URL`, `--class NAME` (`-jsv`, `-jc`) and `--trust FOLDER`. Raises InvalidConfig, with file and line."""
    urls: list[str] = []
    trusted: list[str] = []
    job_class = ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as wrong:
            raise _wrong(source, number, f"{wrong}") from None
        for option, value in zip(words[::2], [*words[1::2], None], strict=False):
            kind = _OPTIONS.get(option)
            if kind is None:
                raise _wrong(
                    source,
                    number,
                    f"{option} is no option of a request file; there are --jsv, --class and --trust",
                )
            if not value:
                raise _wrong(source, number, f"{option} needs a value")
            if kind == "jsv":
                urls.append(value)
            elif kind == "trust":
                trusted.append(value)
            else:
                job_class = value
    return RequestOptions(jsv=tuple(urls), job_class=job_class, trusted=tuple(trusted))


def _wrong(source: str, line: int, why: str) -> InvalidConfig:
    return InvalidConfig(f"{source}:{line}: {why}.", source=source, line=line)


def read_requests(environ: Mapping[str, str], here: Path) -> list[RequestOptions]:
    """The request files of the working folder, the home folder and the cluster, each once.

    Raises InvalidConfig for one that others could write, and for one of the working folder that names scripts if no other
    trusts it.
    """
    home = Path(environ.get("HOME") or "~").expanduser()
    cluster = Path(environ.get(CLUSTER_VARIABLE) or CLUSTER_FILE)
    requests: list[RequestOptions] = []
    seen: set[Path] = set()
    for path in (here / REQUEST_FILE, home / REQUEST_FILE, cluster):
        real = path.resolve()
        if real in seen or not path.exists():
            requests.append(RequestOptions())
            continue
        seen.add(real)
        try:
            state = path.stat()
            if state.st_uid not in (0, os.getuid()) or state.st_mode & stat.S_IWOTH:
                hint = "It must belong to you or to root, and not everybody may write to it."
                raise InvalidConfig(
                    f"{path} is not used: it names programs to run.", hint=hint, source=str(path)
                )
            requests.append(read_request(path.read_text(encoding="utf-8"), str(path)))
        except (OSError, UnicodeDecodeError) as fault:
            raise InvalidConfig(f"{path} cannot be read: {fault}.", source=str(path)) from None
    in_here, *own = requests
    if in_here.jsv and (here / REQUEST_FILE).resolve() != (home / REQUEST_FILE).resolve():
        _check_trusted(here, home, [folder for request in own for folder in request.trusted])
    return requests


def _check_trusted(here: Path, home: Path, trusted: Sequence[str]) -> None:
    """A file of a download or an output must run nothing."""
    folders = {(home / os.path.expanduser(folder)).resolve() for folder in trusted}  # noqa: PTH111 - ~ may be no user's
    if here.resolve() not in folders:
        path = here / REQUEST_FILE
        raise InvalidConfig(
            f"{path} names programs to run, and you do not trust this folder yet.",
            hint=f"If it is yours, add a line to ~/{REQUEST_FILE}: --trust {shlex.quote(str(here))}. Else remove it.",
            source=str(path),
        )


def stock() -> Complexes:
    """The resources of a new Grid Engine."""
    from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES

    return STOCK_COMPLEXES


def complexes_of(session: Session) -> Complexes:
    """The resources of the server; if it does not say, of a new Grid Engine."""
    from lodesman.languages.gridengine.complexes import Complex, Complexes, Consumable
    from lodesman.languages.gridengine.values import ComplexType
    from lodesman.wire import calls

    try:
        rows = session.call(calls.QUOTA_RESOURCES).resources
    except LodesmanError:
        return stock()
    complexes = (
        Complex(
            name=row.name, shortcut=row.shortcut, kind=ComplexType(row.type), consumable=Consumable(row.consumable)
        )
        for row in rows
    )  # fmt: skip
    return Complexes(tuple(complexes))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedDraft:
    """A description as it is sent."""

    record: Record
    writers: Mapping[str, str]  # the script of each attribute of Grid Engine that one wrote
    edits: Sequence[AttributeEdit]  # left to the server
    hold: bool  # its jobs are Held


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """The class, edits and scripts of one call."""

    job_class: str = ""
    usual_class: str = ""  # of a description that names none
    scripts: tuple[JsvUrl, ...] = ()
    edits: Sequence[AttributeEdit] = ()
    complexes: Callable[[], Complexes] = stock  # asked for if there are scripts

    def apply(self, record: Record, label: str, *, hold: bool = False) -> VerifiedDraft:
        """An unchanged record is the same object. Raises InvalidJob, InvalidConfig."""
        if self.job_class or self.usual_class:
            from lodesman.decide.submission.resolve import asked_class, with_class

            if self.job_class or not asked_class(record):
                record = with_class(record, self.job_class or self.usual_class)
        if self.scripts:
            return self._verified(record, label, hold=hold)
        return VerifiedDraft(record=record, writers={}, edits=self.edits, hold=hold)

    def _verified(self, record: Record, label: str, *, hold: bool) -> VerifiedDraft:
        from lodesman.decide.submission.native import record_of, values_of
        from lodesman.decide.submission.native_table import BY_USER, HOLD
        from lodesman.decide.submission.native_texts import beside_edits, key_names
        from lodesman.decide.submission.resolution import JsvView
        from lodesman.decide.submission.resolve import asked_class, with_class
        from lodesman.languages.jobclass import merge
        from lodesman.languages.jobclass.request import changes_of

        complexes = self.complexes()
        keys = key_names(complexes)
        described = dict(values_of(record, complexes)[0])
        if hold:
            described.setdefault(HOLD, BY_USER)
        # Edits of what the class has cannot be seen here, and wait for the server.
        seen = merge(described, changes_of(self.edits), keys).values
        before = JsvView(values=seen, job_class=asked_class(record))
        view, writers = self._run(before, label)
        if not writers:
            return VerifiedDraft(record=record, writers={}, edits=self.edits, hold=hold)
        values, edits = beside_edits(described, self.edits, seen, view.values, keys)
        hold = hold and values.get(HOLD) == BY_USER
        # What the option says is no word of the description.
        kept = {name: value for name, value in values.items() if not (hold and name == HOLD)}
        new, notices = record_of(record, kept, complexes)
        of_server = values_of(new, complexes)[1]  # it says these itself
        for notice in notices:
            if notice not in of_server:
                note(plain(f"{label}: warning: {notice.message}"))
        new = with_class(new, view.job_class) if view.job_class != before.job_class else new
        return VerifiedDraft(record=new, writers=writers, edits=edits, hold=hold)

    def _run(self, view: JsvView, label: str) -> tuple[JsvView, dict[str, str]]:
        from lodesman.decide.submission.native_texts import changed_paths
        from lodesman.server.jsv import JsvContext, verify_at_client
        from lodesman.server.jsv.chain import after, parameters_of

        account = pwd.getpwuid(os.getuid())
        group = grp.getgrgid(account.pw_gid).gr_name
        parameters = parameters_of(view, JsvContext.CLIENT, user=account.pw_name, group=group)
        writers: dict[str, str] = {}
        for step in verify_at_client(self.scripts, parameters, _settings(os.environ)):
            path, outcome = step.url.path, step.outcome
            for text in (*(f"{line.level}: {line.text}" for line in outcome.log), *outcome.notes):
                note(plain(f"{label}: {path}: {text}"))
            left = after(view, outcome)
            if left.rejected is not None:
                sentence = left.rejected.rstrip(".")
                raise InvalidJob(
                    f"Unable to run job: {sentence}.", hint=f"Your JSV says so: {path}.", jsv=path
                )
            names = [" ".join(filter(None, pair)) for pair in changed_paths(view.values, left.values)]
            names += ["jc"] if left.job_class != view.job_class else []
            writers |= {name: path for name in names if len(name) <= _LONGEST_NAME}
            view = left
        return view, writers


def name_client_jsv(wrong: InvalidJob, writers: Mapping[str, str]) -> None:
    """Name the script that wrote a value which no job can have."""
    from lodesman.decide.submission.native_table import path_of

    for name, script in writers.items():
        attribute, _, key = name.partition(" ")
        if path_of(attribute, key or None).partition(".")[0] == wrong.data.get("attribute"):
            wrong.hint = f"{wrong.hint} It is from your JSV {script}.".lstrip()
            return


def _settings(environ: Mapping[str, str]) -> ScriptSettings:
    """`SGE_JSV_TIMEOUT` is in seconds."""
    from lodesman.server.jsv import ScriptSettings

    text = environ.get("SGE_JSV_TIMEOUT", "")
    is_number = text.isascii() and text.isdigit() and len(text) < 10 and int(text)
    return ScriptSettings(time_out_seconds=float(text)) if is_number else ScriptSettings()


def client_request(
    job_class: str,
    jsv: tuple[str, ...],
    edits: Sequence[AttributeEdit] = (),
    complexes: Callable[[], Complexes] = stock,
) -> ClientRequest:
    """What the command line and the request files ask for. Raises InvalidConfig."""
    here = Path.cwd()
    files = read_requests(os.environ, here)
    usual = next((request.job_class for request in files if request.job_class), "")
    if not jsv and not any(request.jsv for request in files):
        return ClientRequest(job_class=job_class, usual_class=usual, edits=edits)
    from lodesman.server.jsv import JsvContext, client_order, parse_url

    in_here, home, cluster = (request.jsv for request in files)
    urls = client_order(jsv, here=in_here, home=home, cluster=cluster)
    parsed = (parse_url(url, JsvContext.CLIENT, folder=str(here)) for url in urls)
    return ClientRequest(
        job_class=job_class, usual_class=usual, edits=edits, complexes=cache(complexes),
        scripts=tuple(url for url in parsed if url is not None),
    )  # fmt: skip
