"""What all payloads of a pilot share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Callable

from lodesman.pilot.context import PilotContext
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.trial import NodeTrial
from lodesman.wire.client import Client


@dataclass(frozen=True)
class PayloadContext:
    """What payloads use of the pilot."""

    pilot: PilotContext
    reaper: Reaper
    outbox: Outbox
    new_client: Callable[[], Client]
    site: str = ""  # where they run, '': unknown

    @cached_property
    def trial(self) -> NodeTrial:
        """Says whether the node is of use."""
        pilot = self.pilot
        return NodeTrial(pilot.directory, pilot.environment, self.reaper, folder=pilot.folder)
