"""Which tests a change reaches: those that import, however indirectly, a module that it touches.

python -m scripts.reach [--since COMMIT]    prints a line for each file of tests, the nearest first, or `all`
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
_FIXTURE = re.compile(r"^@pytest\.fixture(.*)\n(?:async )?def (\w+)", re.MULTILINE)
_SOURCES = ("lodesman", "tests", "bench", "examples")
# They read the tree itself: its texts, its imports, its rules.
_READERS = ("tests.house", "tests.docs")
_NO_NOUNS = {"", "src", "lodesman", "__init__"}
# A change there may touch any test. Their own imports are not followed: what uses a database imports it by itself.
_FOUNDATIONS = {"tests.conftest", "lodesman"}
_TEXTS = (
    "docs/",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "examples/",
    "contrib/",
    "scripts/",
    ".ci/",
)


def changed_files(since: str = "") -> list[str]:
    """Files that differ from a commit, and those that git does not know yet; paths from the root.

    Without a commit: from where this branch left the one that it follows, else from what was committed last.
    """
    base = since or _ask_git("merge-base", "HEAD", "@{upstream}") or "HEAD"
    if since and not _ask_git("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"):
        raise SystemExit(f"check: there is no commit {since}; git log --oneline shows those that are there")
    listed = (
        _ask_git("diff", "--name-only", "--no-renames", base),
        _ask_git("ls-files", "--others", "--exclude-standard"),
    )
    return sorted({line for lines in listed for line in lines.splitlines()})


def reached_tests(changed: Iterable[str]) -> list[str] | None:
    """Files of tests that a change of these files reaches, the nearest first; None where it may reach any.

    Near are those that read the tree, then those named after the changed module or its package, then those with few
    imports between; of these the short ones first.
    """
    changed = list(changed)
    graph = grimp.build_graph(*_SOURCES, cache_dir=str(ROOT / ".grimp_cache"))
    touched: set[str] = set()
    for path in changed:
        modules = _modules_of(path, graph.modules)
        if modules is None:
            return None
        touched |= modules
    if touched & _FOUNDATIONS:
        return None
    _add_conftests(graph)
    steps = _steps_to(touched, graph)
    steps |= {module: 0 for module in graph.modules if module.startswith(_READERS)}
    nouns = {noun for path in changed for noun in Path(path).with_suffix("").parts[-2:]}
    named = re.compile(rf"[._]({'|'.join(sorted(map(re.escape, nouns - _NO_NOUNS))) or '(?!)'})s?([._]|$)")
    near: list[tuple[bool, int, int, str]] = []
    for module in steps:
        file = _path_of(module)
        if ".test_" in module and file.exists():
            is_other = steps[module] > 0 and not named.search(module)
            near.append((is_other, steps[module], file.stat().st_size, str(file.relative_to(ROOT))))
    return [path for *_, path in sorted(near)]


def _steps_to(touched: set[str], graph: grimp.ImportGraph) -> dict[str, int]:
    """The modules that import the touched ones, with the number of imports between."""
    steps: dict[str, int] = {}
    ring = touched
    while ring:
        steps |= dict.fromkeys(ring, 1 + max(steps.values(), default=0))
        importers = (graph.find_modules_that_directly_import(module) for module in ring & graph.modules)
        ring = {*chain.from_iterable(importers)} - steps.keys()
    return steps


def _modules_of(path: str, modules: set[str]) -> set[str] | None:
    """The modules that a file is, or is data of; None where it may be data of any test."""
    parts = Path(path).parts[1:] if path.startswith("src/") else Path(path).parts
    if path.endswith(".py") and parts[0] in _SOURCES:
        module = ".".join(Path(*parts).with_suffix("").parts)
        package = module.removesuffix(".__init__")
        return {module} if package == module else {package, *_inside(package, modules)}
    if path.startswith("src/"):
        packages = (".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
        return _inside(next((package for package in packages if package in modules), "lodesman"), modules)
    return set() if path.startswith(_TEXTS) else None


def _inside(package: str, modules: set[str]) -> set[str]:
    return {module for module in modules if module.startswith(f"{package}.")}


def _add_conftests(graph: grimp.ImportGraph) -> None:
    """A test, or a conftest, depends on each conftest above it of which it names a fixture."""
    for imported in graph.find_modules_directly_imported_by("tests.conftest"):
        graph.remove_import(importer="tests.conftest", imported=imported)
    conftests = sorted(module for module in graph.modules if module.endswith(".conftest"))
    for conftest in conftests:
        fixtures = _FIXTURE.findall(_path_of(conftest).read_text(encoding="utf-8"))
        named = re.compile(rf"\b({'|'.join(name for _, name in fixtures) or '(?!)'})\b")
        is_used_by_all = any("autouse" in given for given, _ in fixtures)
        for module in _inside(conftest.removesuffix(".conftest"), graph.modules) - {conftest}:
            if ".test_" not in module and not module.endswith(".conftest"):
                continue
            if is_used_by_all or named.search(_path_of(module).read_text(encoding="utf-8")):
                graph.add_import(importer=module, imported=conftest)


def _path_of(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def _ask_git(*words: str) -> str:
    git = shutil.which("git")
    if not git:
        return ""
    done = subprocess.run([git, "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--since", default="", metavar="COMMIT", help="what counts as changed (default: since upstream)"
    )
    reached = reached_tests(changed_files(parser.parse_args().since))
    print("all" if reached is None else "\n".join(reached))


if __name__ == "__main__":
    main()
