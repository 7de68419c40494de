"""The server's verifier (JSV): how it is configured, and submissions on their way to it and back."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from lodesman.wire.jobs import Notice, Resolution
from lodesman.wire.requests import SubmitBody

_Seconds = Annotated[float, Meta(gt=0, le=600)]
_Amount = Annotated[int, Meta(ge=1, le=1 << 31)]


class JsvSection(Struct, forbid_unknown_fields=True, frozen=True):
    """The server's verifier. `server`: `script:account@/path`, or `none`; `workers`: processes of it at one time; `account`:
    as whom it runs if the URL names none. `time_out_seconds` is between two lines of it, `cpu_seconds` for one submission.
    `allowed_modifications`: attributes of Grid Engine in which `lode change` may change a verified job, or `none`.
    `sge_root`: the tree with the libraries that it sources; empty: those that come with this program.
    """

    server: str = "none"
    workers: Annotated[int, Meta(ge=1, le=64)] = 2
    account: str = ""
    time_out_seconds: _Seconds = 10.0
    threshold_ms: Annotated[int, Meta(ge=0)] = 5_000
    strict_accept: bool = False
    allowed_modifications: str = "ac,h,i,e,o,j,M,N,p,w"
    sge_root: str = ""
    memory_mb: _Amount = 4_096
    cpu_seconds: _Amount = 60
    file_size_mb: _Amount = 1_024
    processes: _Amount = 256

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.server.strip().lower() not in ("", "none")


class VerifyBody(Struct, frozen=True):
    """A submission of a user of these groups. `classes`: the version of the job classes that it has to be made of; None: as
    they are stored.
    """

    submission: SubmitBody
    user: str
    groups: tuple[str, ...]
    jsv: JsvSection
    classes: int | None = None


class VerifiedJob(Struct, frozen=True):
    """What the six steps made of one description. `record` None: it stays as it is."""

    record: dict[str, Any] | None
    resolution: Resolution | None
    notices: list[Notice]


class Verified(Struct, frozen=True):
    """All descriptions of a submission, in their order."""

    jobs: list[VerifiedJob]
