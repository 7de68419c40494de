"""The benchmark measures what users run: it goes through public doors, and changes nothing of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

OWN = {"self", "cls"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def programs(text: str) -> Iterator[ast.AST]:
    """A module, and each text in it that is a program of its own, as a server may run it first."""
    module = ast.parse(text)
    yield module
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "lodesman" in node.value:
            try:
                yield ast.parse(node.value)
            except SyntaxError:
                continue


def names_of(node: ast.AST) -> Iterator[str]:
    """What a statement defines or imports."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def private_doors(text: str, own: set[str]) -> Iterator[str]:
    """Private names of the program that a module uses, and what of the program it replaces."""
    for program in programs(text):
        imported: set[str] = set()
        for node in ast.walk(program):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lodesman"):
                imported |= {alias.asname or alias.name for alias in node.names}
                path = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                yield from (f"imports {part}" for part in path if is_private(part))
        for node in ast.walk(program):
            if isinstance(node, ast.Attribute):
                base = node.value.id if isinstance(node.value, ast.Name) else ""
                if base in imported and isinstance(node.ctx, ast.Store):
                    yield f"replaces {base}.{node.attr}"
                elif is_private(node.attr) and base not in OWN and (base in imported or node.attr not in own):
                    yield f"uses {ast.unparse(node)}"


def test_the_benchmark_uses_public_doors(root):
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "bench").rglob("*.py"))}
    own = {name for text in texts.values() for node in ast.walk(ast.parse(text)) for name in names_of(node)}
    # The end of a process, of the standard library.
    own.add("_exit")
    found = {str(path.relative_to(root)): [*private_doors(text, own)] for path, text in texts.items()}
    assert {name: doors for name, doors in found.items() if doors} == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from lodesman.server.writer.live import _LivePilots", ["imports _LivePilots"]),
        (
            "FIRST = '''\nfrom lodesman.server.writer.claim import Claim\nClaim._allowed = None\n'''",
            ["replaces Claim._allowed"],
        ),
        ("from lodesman.a import Director\nDirector.launch = None", ["replaces Director.launch"]),
        ("claim = make()\nclaim._allowed()", ["uses claim._allowed"]),
        ("from lodesman.a import Claim\nClaim().allowed(claim.count)", []),
    ],
)
def test_what_is_private_is_found(text, said):
    assert [*private_doors(text, set())] == said
