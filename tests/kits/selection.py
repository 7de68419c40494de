"""Which tests a run consists of: by its extent, by the database, by what a folder can have."""

from __future__ import annotations

from pathlib import Path

import pytest

KINDS = ("sqlite", "postgresql")
EXTENTS = ("landing", "all")
_HERE = Path(__file__).parents[1]
_E2E = _HERE / "e2e"
# None of these tests starts a server or a batch system.
_ALONE = {_HERE / name for name in ("fuzz", "house", "scenario", "store_contract", "unit")}
# A landing runs those of them on PostgreSQL, too, that are marked `stores`.
_MOSTLY_ALIKE = {_HERE / "api", _E2E}


def add_options(parser: pytest.Parser) -> None:
    """The options of a run."""
    parser.addoption("--store", choices=(*KINDS, "both"), default="sqlite", help="the database of most tests")
    parser.addoption(
        "--extent", choices=EXTENTS, default="all", help="what ./check runs, or everything (default)"
    )


class Selection:
    """Leaves out what does not belong to a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._store, self._marks = config.option.store, config.option.markexpr
        self._is_landing = config.option.extent == "landing"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Nothing of a folder is read of which no test would run."""
        is_of_processes = self._marks.startswith(("e2e", "engines"))
        useless = {_E2E} if "not e2e" in self._marks else _ALONE if is_of_processes else ()
        if collection_path in useless:
            return True
        is_test = collection_path.name.startswith("test_") and _E2E not in collection_path.parents
        return True if is_of_processes and is_test and not _starts_processes(collection_path) else None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """With `--store both`, what uses a database is a test for each that it is run on."""
        if self._store == "both" and "database_kind" in metafunc.fixturenames:
            kinds = self._kinds_of(metafunc.definition)
            metafunc.parametrize("database_kind", kinds, indirect=True, scope="session")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept: list[pytest.Item] = []
        gone: list[pytest.Item] = []
        for item in items:
            (kept if self._belongs(item) else gone).append(item)
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = kept

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if _E2E in item.path.parents:
            item.add_marker("e2e")
        elif _ALONE & {*item.path.parents} and (
            item.get_closest_marker("e2e") or item.get_closest_marker("engines")
        ):
            raise pytest.UsageError(
                f"{item.nodeid} starts processes: it belongs to tests/e2e or tests/engines"
            )

    def _belongs(self, item: pytest.Item) -> bool:
        """Nothing is run that is about the other database, and nothing on PostgreSQL that uses no database."""
        if self._is_landing and item.get_closest_marker("thorough"):
            return False
        if self._store == "both":
            return True
        if self._store == "postgresql" and "database_kind" not in getattr(item, "fixturenames", ()):
            return item.get_closest_marker("postgresql") is not None
        return self._store in self._kinds_of(item)

    def _kinds_of(self, test: pytest.Item) -> list[str]:
        """The databases that a test is run on."""
        about = [kind for kind in KINDS if test.get_closest_marker(kind)]
        is_alike = _MOSTLY_ALIKE & {*test.path.parents} and not test.get_closest_marker("stores")
        return about or ["sqlite"] if self._is_landing and is_alike else about or [*KINDS]


def _starts_processes(path: Path) -> bool:
    """Whether a file marks tests as those of processes, itself or by the kits that it uses."""
    return any(word in path.read_text(encoding="utf-8") for word in ("mark.e2e", "mark.engines", "_KITS"))
