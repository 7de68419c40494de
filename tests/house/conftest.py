"""The tree as the tests of the house see it: paths and parsed sources."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def package(root: Path) -> Path:
    return root / "src" / "lodesman"


@pytest.fixture(scope="session")
def sources(root: Path, package: Path) -> dict[str, ast.Module]:
    """Every module of the package, by its path below `src/lodesman`; those of the demo below the root."""
    demo = root / "examples" / "demo"
    found = {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}
    # What scripts of users load has the place and the names that they know.
    paths = {name: path for name, path in found.items() if not name.startswith("server/jsv/lib/")}
    paths |= {path.relative_to(root).as_posix(): path for path in sorted(demo.rglob("*.py"))}
    return {
        name: ast.parse(path.read_text(encoding="utf-8"), filename=str(path)) for name, path in paths.items()
    }


@pytest.fixture(scope="session")
def nodes(sources: dict[str, ast.Module]) -> dict[str, list[ast.AST]]:
    """Everything in each module, outermost first."""
    return {name: list(ast.walk(tree)) for name, tree in sources.items()}
