"""A hook of the build (hatchling): notes the commit of the sources in the wheel and in the source package.

Nothing is written into the tree. A wheel that is built from a source package has the note of that one.
"""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PLACES = {"wheel": "lodesman/", "sdist": ""}


class CommitHook(BuildHookInterface[Any]):
    """Gives the builder one more file, which lies in a temporary folder meanwhile."""

    _scratch: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a build; an editable one has the checkout."""
        package = Path(self.root) / "src" / "lodesman"
        origin = runpy.run_path(str(package / "user" / "cli" / "origin.py"))
        commit = origin["source_commit"](package)
        if version == "editable" or not commit:
            return
        self._scratch = tempfile.mkdtemp()
        note = Path(self._scratch) / origin["NOTE"]
        note.write_text(f"{commit}\n", encoding="utf-8")
        build_data["force_include"][str(note)] = f"{_PLACES[self.target_name]}{note.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After it."""
        if self._scratch:
            shutil.rmtree(self._scratch)
