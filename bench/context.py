"""What the rows share: sizes, worlds that are built once and copied, floors, servers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import floors
from bench.server import Server
from bench.stores import PostgresServer
from bench.world import GRID, Size, Workload, build, resources

# Parts of all sizes.
FULL, QUICK, SMOKE = 1, 10, 100


@dataclass(slots=True)
class Context:
    """One run of the benchmark on one kind of database. `part`: all sizes are divided by it. `dirac`: the harness of the
    peer, or a report of it. `pgqueuer`, `hyperqueue`: a Python that has it. `postgresql`: where worlds are stored, if not
    in files.
    """

    home: Path
    part: int
    samples: int
    floors: floors.Floors
    say: Callable[[str], None]
    dirac: Path | None = None
    pgqueuer: Path | None = None
    hyperqueue: Path | None = None
    postgresql: PostgresServer | None = None
    prelude: str = ""
    server_core: int | None = None
    _built: dict[tuple[Size, str], Path] = field(default_factory=dict, init=False)
    _copies: int = field(default=0, init=False)

    @property
    def seconds(self) -> float:
        """How long a load runs."""
        return {FULL: 10.0, QUICK: 2.0}.get(self.part, 0.3)

    @property
    def warm_seconds(self) -> float:
        """How long the load runs before the measurement."""
        return {FULL: 3.0, QUICK: 1.0}.get(self.part, 0.1)

    def less(self, full: int, least: int = 1) -> int:
        """The part of a size that is measured."""
        return max(full // self.part, min(full, least))

    def size(self, **given: int) -> Size:
        """The full size (1,000,000 jobs in 10,000 task queues), or a part of it."""
        chosen = {"queues": 10_000, "jobs": 1_000_000, "rows": 100_000, **given}
        chosen |= {name: self.less(chosen[name]) for name in ("queues", "jobs", "rows") if chosen[name]}
        return Size(**chosen)

    def world(self, size: Size, workload: Workload = GRID) -> Path:
        """A copy of a world, which the row may change."""
        original = self._built.get((size, workload.name))
        if original is None:
            original = self.home / f"world-{len(self._built)}"
            self.say(f"building {size}")
            original.mkdir(parents=True)
            if self.postgresql:
                self.postgresql.make(original)
            build(original, size, workload)
            if self.postgresql:
                self.postgresql.settle(original)
            self._built[size, workload.name] = original
        self._copies += 1
        copy = self.home / f"copy-{self._copies}"
        shutil.copytree(original, copy)
        if self.postgresql:
            self.postgresql.make(copy, original)
        return copy

    def tokens(self, data: Path) -> dict[str, Any]:
        """The tokens of the pilots and of the administrator of a world."""
        found: dict[str, Any] = json.loads((data / "tokens.json").read_text())
        return found

    def server(
        self, data: Path, *, settings: Mapping[str, Any] | None = None, resources_file: Path | None = None,
        prelude: str = "", workload: Workload = GRID,
    ) -> Server:  # fmt: skip
        """A server on a world, with the large grid as its resources."""
        file = resources_file or self.home / f"{workload.name}.toml"
        if not file.exists():
            file.write_text(resources(workload))
        cores = () if self.server_core is None else (self.server_core,)
        return Server(
            data, resources=file, settings=settings, prelude=f"{self.prelude}\n{prelude}", cores=cores
        )

    def drop(self, data: Path) -> None:
        """Remove a copy."""
        if self.postgresql:
            self.postgresql.drop(data)
        shutil.rmtree(data, ignore_errors=True)
