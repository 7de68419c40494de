"""The server's verifier (JSV): how it is configured, and submissions on their way to it and back."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from lodesman.wire.jobs import Notice, Resolution
from lodesman.wire.requests import SubmitBody

_Seconds = Annotated[float, Meta(gt=0, le=600)]
_Amount = Annotated[int, Meta(ge=1, le=1 << 31)]


class JsvSection(Struct, forbid_unknown_fields=True, frozen=True):
    """How the server's verifier is configured."""

    server: str = "none"  # `script:account@/path`, or `none`.
    workers: Annotated[int, Meta(ge=1, le=64)] = 2  # Processes of it at one time.
    account: str = ""  # As whom it runs if the URL names none.
    time_out_seconds: _Seconds = 10.0  # Between two lines of it.
    threshold_ms: Annotated[int, Meta(ge=0)] = 5_000
    strict_accept: bool = False
    # Attributes of Grid Engine in which `lode change` may change a verified job, or `none`.
    allowed_modifications: str = "ac,h,i,e,o,j,M,N,p,w"
    sge_root: str = ""  # The tree with the libraries that it sources; '': those that come with this program.
    memory_mb: _Amount = 4_096
    cpu_seconds: _Amount = 60  # For one submission.
    file_size_mb: _Amount = 1_024
    processes: _Amount = 256

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.server.strip().lower() not in ("", "none")


class VerifyBody(Struct, frozen=True):
    """A submission of a user."""

    submission: SubmitBody
    user: str
    groups: tuple[str, ...]  # Of the user.
    jsv: JsvSection
    # The version of the job classes that it has to be made of; None: as they are stored.
    classes: int | None = None


class VerifyResult(Struct, frozen=True):
    """What the six steps made of one description."""

    record: dict[str, Any] | None  # None: it stays as it is.
    resolution: Resolution | None
    notices: list[Notice]


class VerifyAnswer(Struct, frozen=True):
    """All descriptions of a submission, in their order."""

    jobs: list[VerifyResult]
