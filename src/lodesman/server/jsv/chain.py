"""Which scripts verify a submission, what they see and leave of it, and what may change afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.errors import Forbidden, InvalidConfig
from lodesman.decide.submission.jsv_texts import JsvTexts, texts_of, view_of
from lodesman.decide.submission.resolution import JsvView
from lodesman.server.jsv.parameters import JsvContext, Parameters

# As Grid Engine has them: modifications that need no JSV's word.
ALLOWED_MODIFICATIONS: Final = "ac,h,i,e,o,j,M,N,p,w"
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
# Whose words a script reads in CLIENT; scripts that were written for Grid Engine compare it.
_CLIENTS: Final = {JsvContext.CLIENT: "qsub", JsvContext.SERVER: "qmaster"}


class JsvVerdict(StrEnum):
    """The text alone distinguishes rejections."""

    ACCEPTED = "accepted"
    CORRECTED = "corrected"
    REJECTED = "rejected"
    REJECTED_FOR_NOW = "temporarily rejected"


class ParameterChange(Struct, frozen=True, kw_only=True):
    """One change that a script made."""

    name: str
    value: str | None  # None: removed


class JsvLogLine(Struct, frozen=True, kw_only=True):
    """What a script wants in the log."""

    level: str  # INFO, WARNING or ERROR
    text: str


class JsvOutcome(Struct, frozen=True, kw_only=True):
    """The end of a dialogue."""

    verdict: JsvVerdict
    message: str
    parameters: Parameters  # as the script left them; as given if it rejected the submission
    changes: tuple[ParameterChange, ...] = ()  # in the order of the script
    environment: tuple[ParameterChange, ...] = ()
    log: tuple[JsvLogLine, ...] = ()  # the first 100 lines
    notes: tuple[str, ...] = ()  # what was ignored, each once, and how many lines are left out
    restart: bool = False  # the process broke the protocol and must not be used again
    seconds: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether the submission goes on."""
        return self.verdict in {JsvVerdict.ACCEPTED, JsvVerdict.CORRECTED}


class JsvUrl(Struct, frozen=True, kw_only=True):
    """A script."""

    path: str  # absolute
    user: str = ""  # as whom it runs in a server; '': the configured account


def parse_url(text: str, context: JsvContext, *, folder: str = "") -> JsvUrl | None:
    """Read `none | [script:][user@]path`; None: no script. A client's relative path starts in `folder`.

    Raises InvalidConfig: an unknown type, an account in a client's, a relative path in a server's.
    """
    url = text.strip()
    if not url or url.lower() == "none":
        return None
    kind, colon, rest = url.partition(":")
    if colon and "/" not in kind and "@" not in kind:
        if kind != "script":
            raise _bad(text, f"the type {kind!r} is unknown", "Write script:/path/of/the/script.")
        url = rest
    user, at, path = url.partition("@")
    if not at or "/" in user:
        user, path = "", url
    elif context is JsvContext.CLIENT:
        raise _bad(text, "only the JSV of a server may name an account", "Leave out the text before '@'.")
    elif not _USER.fullmatch(user):
        raise _bad(text, f"{user!r} is no name of an account", "Write script:account@/path/of/the/script.")
    if not path.startswith("/"):
        if not path or not folder:
            raise _bad(text, "the path is not absolute", "Write the path from the root folder on.")
        path = f"{folder.rstrip('/')}/{path.removeprefix('./')}"
    return JsvUrl(path=path, user=user)


def _bad(text: str, why: str, hint: str) -> InvalidConfig:
    return InvalidConfig(f'The JSV "{text}" cannot be used: {why}.', hint=hint, jsv=text)


def client_order(
    command_line: Sequence[str] = (), *, here: Sequence[str] = (), home: Sequence[str] = (), cluster: Sequence[str] = ()
) -> list[str]:  # fmt: skip
    """The URLs of a client in the order in which they verify, before the server's own.

    Those of the command line, the last one first; then of the working folder, the home, the cluster.
    """
    return [url for source in (command_line, here, home, cluster) for url in reversed(source)]


def check_modification(names: Collection[str], allowed: str = ALLOWED_MODIFICATIONS) -> None:
    """Refuse to change a waiting job past the server's JSV, but for `allowed` parameters, `w`, and with `h` also `t`.

    Raises Forbidden, in the words of Grid Engine.
    """
    if allowed.strip().lower() == "none":
        if names:
            raise Forbidden(
                "No job modification allowed due to jsv_allowed_mod configuration",
                hint="It is allowed_modifications in [jsv] of the server's configuration.",
                parameters=sorted(names),
            )
        return
    good = {name.strip() for name in allowed.split(",")} | {"w"}
    if "h" in good:
        good.add("t")
    refused = [name for name in names if name not in good]
    if refused:
        raise Forbidden(
            f"rejected due to jsv_allowed_mod configuration which does not allow: {','.join(refused)}",
            hint="It is allowed_modifications in [jsv] of the server's configuration.",
            parameters=refused,
        )


def parameters_of(view: JsvView, context: JsvContext, *, user: str, group: str) -> Parameters:
    """What scripts see of a job."""
    texts = texts_of(view)
    return Parameters(
        context=context, user=user, group=group, client=_CLIENTS[context], command=texts.command,
        arguments=texts.arguments, values=texts.parameters, environment=texts.environment,
    )  # fmt: skip


def after(view: JsvView, outcome: JsvOutcome) -> JsvView:
    """The job as a script left it, or with the text of its rejection."""
    left = outcome.parameters
    if not outcome.accepted:
        return replace(view, rejected=outcome.message)
    return view_of(view, JsvTexts(left.command, left.arguments, left.values, left.environment))


def asker(
    verify: Callable[[Parameters], JsvOutcome], *, user: str, group: str
) -> Callable[[JsvView], JsvView]:
    """Asks the server's script about jobs of a user; raises what `verify` raises."""
    return lambda view: after(view, verify(parameters_of(view, JsvContext.SERVER, user=user, group=group)))
