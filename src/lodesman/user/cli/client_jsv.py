"""What `lode submit` does before it sends a description: its job class, and the user's own verifiers (JSV).

Options come from the command line and from request files, which have them as `sge_request` has: `./.lode_request`,
`~/.lode_request`, and the one of the cluster. That of the working folder names programs only if the user trusts the folder.
"""

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
    """What one source asks for: URLs of scripts in their order, a job class ('' for none), and the folders whose request
    files may name scripts.
    """

    jsv: tuple[str, ...] = ()
    job_class: str = ""
    trusted: tuple[str, ...] = ()


def read_request(text: str, source: str) -> RequestOptions:
    """The options of a request file: `--jsv URL` and `--class NAME`, or as Grid Engine calls them `-jsv` and `-jc`, and
    `--trust FOLDER`; `#` begins a comment. Raises InvalidConfig for anything else, with file and line.
    """
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
    """Those of the working folder, of the home folder and of the cluster, each file once; a missing one asks for nothing.

    Raises InvalidConfig, also for a file that others could have written: it would run their scripts. The same where the
    one of the working folder names scripts, and neither the home folder's nor the cluster's trusts that folder.
    """
    home = Path(environ.get("HOME") or "~").expanduser()
    cluster = Path(environ.get(CLUSTER_VARIABLE) or CLUSTER_FILE)
    found: list[RequestOptions] = []
    seen: set[Path] = set()
    for path in (here / REQUEST_FILE, home / REQUEST_FILE, cluster):
        real = path.resolve()
        if real in seen or not path.exists():
            found.append(RequestOptions())
            continue
        seen.add(real)
        try:
            state = path.stat()
            if state.st_uid not in (0, os.getuid()) or state.st_mode & stat.S_IWOTH:
                hint = "It must belong to you or to root, and not everybody may write to it."
                raise InvalidConfig(
                    f"{path} is not used: it names programs to run.", hint=hint, source=str(path)
                )
            found.append(read_request(path.read_text(encoding="utf-8"), str(path)))
        except (OSError, UnicodeDecodeError) as fault:
            raise InvalidConfig(f"{path} cannot be read: {fault}.", source=str(path)) from None
    in_here, *own = found
    if in_here.jsv and (here / REQUEST_FILE).resolve() != (home / REQUEST_FILE).resolve():
        _check_trusted(here, home, [folder for one in own for folder in one.trusted])
    return found


def _check_trusted(here: Path, home: Path, trusted: Sequence[str]) -> None:
    """A file that came with a download or an output must run nothing by itself. Raises InvalidConfig."""
    folders = {(home / os.path.expanduser(one)).resolve() for one in trusted}  # noqa: PTH111 - ~ may be no user's
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
    """The resources of the server, by which scripts see requests; those of a new Grid Engine if it does not say."""
    from lodesman.languages.gridengine.complexes import Complex, Complexes, Consumable
    from lodesman.languages.gridengine.values import ComplexType
    from lodesman.wire import calls

    try:
        rows = session.call(calls.QUOTA_RESOURCES).resources
    except LodesmanError:
        return stock()
    known = (
        Complex(
            name=one.name, shortcut=one.shortcut, kind=ComplexType(one.type), consumable=Consumable(one.consumable)
        )
        for one in rows
    )  # fmt: skip
    return Complexes(tuple(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedDraft:
    """A description as it is sent, which script wrote which attribute of Grid Engine, the edits that are left to the server,
    and whether its jobs are Held.
    """

    record: Record
    writers: Mapping[str, str]
    edits: Sequence[AttributeEdit]
    hold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """The class, the edits and the scripts of one call. `usual_class` counts for a description that names none; `complexes`
    are asked for if there are scripts.
    """

    job_class: str = ""
    usual_class: str = ""
    scripts: tuple[JsvUrl, ...] = ()
    edits: Sequence[AttributeEdit] = ()
    complexes: Callable[[], Complexes] = stock

    def apply(self, record: Record, label: str, *, hold: bool = False) -> VerifiedDraft:
        """A description as it is sent; its record is the same object if nothing changed. Raises InvalidJob if a script
        rejects it, InvalidConfig if one cannot be run.
        """
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
        said = dict(values_of(record, complexes)[0])
        if hold:
            said.setdefault(HOLD, BY_USER)
        # Edits of what the class has cannot be seen here, and wait for the server.
        seen = merge(said, changes_of(self.edits), keys).values
        given = JsvView(values=seen, job_class=asked_class(record))
        view, writers = self._run(given, label)
        if not writers:
            return VerifiedDraft(record=record, writers={}, edits=self.edits, hold=hold)
        values, edits = beside_edits(said, self.edits, seen, view.values, keys)
        hold = hold and values.get(HOLD) == BY_USER
        # What the option says is no word of the description.
        kept = {name: one for name, one in values.items() if not (hold and name == HOLD)}
        new, notices = record_of(record, kept, complexes)
        of_server = values_of(new, complexes)[1]  # it says these itself
        for one in notices:
            if one not in of_server:
                note(plain(f"{label}: warning: {one.message}"))
        new = with_class(new, view.job_class) if view.job_class != given.job_class else new
        return VerifiedDraft(record=new, writers=writers, edits=edits, hold=hold)

    def _run(self, view: JsvView, label: str) -> tuple[JsvView, dict[str, str]]:
        """What the scripts make of a job, and which of them wrote what last. Raises as `apply`."""
        from lodesman.decide.submission.native_texts import changed_paths
        from lodesman.server.jsv import JsvContext, verify_at_client
        from lodesman.server.jsv.chain import after, parameters_of

        account = pwd.getpwuid(os.getuid())
        group = grp.getgrgid(account.pw_gid).gr_name
        parameters = parameters_of(view, JsvContext.CLIENT, user=account.pw_name, group=group)
        writers: dict[str, str] = {}
        for step in verify_at_client(self.scripts, parameters, _settings(os.environ)):
            path, outcome = step.url.path, step.outcome
            for text in (*(f"{one.level}: {one.text}" for one in outcome.log), *outcome.notes):
                note(plain(f"{label}: {path}: {text}"))
            left = after(view, outcome)
            if left.rejected is not None:
                sentence = left.rejected.rstrip(".")
                raise InvalidJob(
                    f"Unable to run job: {sentence}.", hint=f"Your JSV says so: {path}.", jsv=path
                )
            names = [" ".join(filter(None, one)) for one in changed_paths(view.values, left.values)]
            names += ["jc"] if left.job_class != view.job_class else []
            writers |= {name: path for name in names if len(name) <= _LONGEST_NAME}
            view = left
        return view, writers


def name_client_jsv(wrong: InvalidJob, writers: Mapping[str, str]) -> None:
    """Say which script wrote a value that no job can have: the user did not."""
    from lodesman.decide.submission.native_table import path_of

    for name, script in writers.items():
        attribute, _, key = name.partition(" ")
        if path_of(attribute, key or None).partition(".")[0] == wrong.data.get("attribute"):
            wrong.hint = f"{wrong.hint} It is from your JSV {script}.".lstrip()
            return


def _settings(environ: Mapping[str, str]) -> ScriptSettings:
    """How a user's scripts run: `SGE_JSV_TIMEOUT` is in seconds, as for Grid Engine."""
    from lodesman.server.jsv import ScriptSettings

    given = environ.get("SGE_JSV_TIMEOUT", "")
    is_number = given.isascii() and given.isdigit() and len(given) < 10 and int(given)
    return ScriptSettings(time_out_seconds=float(given)) if is_number else ScriptSettings()


def client_request(
    job_class: str,
    jsv: tuple[str, ...],
    edits: Sequence[AttributeEdit] = (),
    complexes: Callable[[], Complexes] = stock,
) -> ClientRequest:
    """What the options of the command line and the request files say together. Raises InvalidConfig."""
    here = Path.cwd()
    files = read_requests(os.environ, here)
    usual = next((one.job_class for one in files if one.job_class), "")
    if not jsv and not any(one.jsv for one in files):
        return ClientRequest(job_class=job_class, usual_class=usual, edits=edits)
    from lodesman.server.jsv import JsvContext, client_order, parse_url

    in_here, home, cluster = (one.jsv for one in files)
    urls = client_order(jsv, here=in_here, home=home, cluster=cluster)
    parsed = (parse_url(url, JsvContext.CLIENT, folder=str(here)) for url in urls)
    return ClientRequest(
        job_class=job_class, usual_class=usual, edits=edits, complexes=cache(complexes),
        scripts=tuple(url for url in parsed if url is not None),
    )  # fmt: skip
