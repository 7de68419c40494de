"""What plans are held against: the live state and the configuration in use, as the reading process knows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lodesman.background.direct import Director
from lodesman.commands.policy import Policy
from lodesman.services.why.picture import Picture
from lodesman.store.engine import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`tick` is called now and then while a plan is made; it raises when that takes too long. `director`: the one that
    runs, None where there is none.
    """

    db: Reader
    policy: Policy
    picture: Picture
    now: float
    tick: Callable[[], None]
    director: Director | None = None
