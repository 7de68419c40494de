"""A job of the six steps before a script, and what the script made of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from lodesman.decide.submission.jsv_texts import JsvTexts, texts_of, view_of
from lodesman.decide.submission.resolution import JsvView
from lodesman.server.jsv.parameters import JsvContext, Parameters
from lodesman.server.jsv.protocol import JsvOutcome

# Whose words a script reads in CLIENT; scripts that were written for Grid Engine compare it.
_CLIENTS: Final = {JsvContext.CLIENT: "qsub", JsvContext.SERVER: "qmaster"}


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
    """Ask the server's script about jobs of a user. What is returned raises what `verify` raises."""
    return lambda view: after(view, verify(parameters_of(view, JsvContext.SERVER, user=user, group=group)))
