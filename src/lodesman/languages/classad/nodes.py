"""Expressions as trees. Each node has its place in the text (offsets `start`, `stop`) and its depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from lodesman.languages.classad.values import UnaryName, Value


class _Placed(Struct, frozen=True, kw_only=True):
    start: int = 0
    stop: int = 0
    depth: int = 1


class Constant(_Placed, frozen=True, kw_only=True):
    """A value in an expression."""

    value: Value


class Name(_Placed, frozen=True, kw_only=True):
    """An attribute by name; `my`, `target` and `parent`, in small letters, are ads."""

    name: str
    key: str


class Select(_Placed, frozen=True, kw_only=True):
    """`base.name`."""

    base: Node
    name: str
    key: str


class Subscript(_Placed, frozen=True, kw_only=True):
    """`base[index]`."""

    base: Node
    index: Node


class Unary(_Placed, frozen=True, kw_only=True):
    """An operator before its operand."""

    operator: UnaryName
    operand: Node


class Binary(_Placed, frozen=True, kw_only=True):
    """An operator between two operands; `?:` gives a default."""

    operator: str
    left: Node
    right: Node


class Logic(_Placed, frozen=True, kw_only=True):
    """`&&` or `||` between two or more operands, left to right."""

    operator: str
    operands: tuple[Node, ...]


class Conditional(_Placed, frozen=True, kw_only=True):
    """`condition ? yes : no`."""

    condition: Node
    yes: Node
    no: Node


class FunctionCall(_Placed, frozen=True, kw_only=True):
    """A call; `key` is its name in small letters."""

    name: str
    key: str
    arguments: tuple[Node, ...]


class ListLiteral(_Placed, frozen=True, kw_only=True):
    """A list."""

    items: tuple[Node, ...]


class AdLiteral(_Placed, frozen=True, kw_only=True):
    """A nested ad: names as written, and expressions."""

    pairs: tuple[tuple[str, Node], ...]


Node: TypeAlias = (
    Constant
    | Name
    | Select
    | Subscript
    | Unary
    | Binary
    | Logic
    | Conditional
    | FunctionCall
    | ListLiteral
    | AdLiteral
)


SCOPE_WORDS: Final = frozenset({"my", "self", "target", "other", "parent"})
"""Names, in small letters, of ads if no attribute has them: itself, the other one, the one around it."""


def constant_of(node: Node) -> Value | None:
    """The value of a written value, or a list of them."""
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, ListLiteral):
        values = []
        for item in node.items:
            value = constant_of(item)
            if value is None:
                return None
            values.append(value)
        return tuple(values)
    return None


_PARTS: Final[dict[type, Callable[[Any], tuple[Node, ...]]]] = {
    Constant: lambda _: (),
    Name: lambda _: (),
    Select: lambda node: (node.base,),
    Subscript: lambda node: (node.base, node.index),
    Unary: lambda node: (node.operand,),
    Binary: lambda node: (node.left, node.right),
    Logic: lambda node: node.operands,
    Conditional: lambda node: (node.condition, node.yes, node.no),
    FunctionCall: lambda node: node.arguments,
    ListLiteral: lambda node: node.items,
    AdLiteral: lambda node: tuple(value for _, value in node.pairs),
}


def children(node: Node) -> tuple[Node, ...]:
    """Parts from left to right."""
    return _PARTS[type(node)](node)


def rewrite(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of node
    node: Node, change: Callable[[Node], Node | None]
) -> Node:
    """What `change` makes of its parts, the whole first; None: ask its parts."""

    def again(part: Node) -> Node:
        return rewrite(part, change)

    changed = change(node)
    if changed is not None:
        return changed
    match node:
        case Constant() | Name():
            return node
        case Select(base=base):
            return replace(node, base=again(base))
        case Subscript(base=base, index=index):
            return replace(node, base=again(base), index=again(index))
        case Unary(operand=operand):
            return replace(node, operand=again(operand))
        case Binary(left=left, right=right):
            return replace(node, left=again(left), right=again(right))
        case Logic(operands=operands):
            return replace(node, operands=tuple(map(again, operands)))
        case Conditional(condition=condition, yes=yes, no=no):
            return replace(node, condition=again(condition), yes=again(yes), no=again(no))
        case FunctionCall(arguments=arguments):
            return replace(node, arguments=tuple(map(again, arguments)))
        case ListLiteral(items=items):
            return replace(node, items=tuple(map(again, items)))
        case AdLiteral(pairs=pairs):
            return replace(node, pairs=tuple((name, again(value)) for name, value in pairs))


def walk(node: Node) -> Iterator[Node]:
    """All parts, each before its own parts."""
    todo = [node]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(reversed(children(part)))


def clauses(node: Node, operator: str = "&&") -> tuple[Node, ...]:
    """The operands of the outermost chain of an operator, or the expression."""
    if isinstance(node, Logic) and node.operator == operator:
        return tuple(part for operand in node.operands for part in clauses(operand, operator))
    return (node,)


def two_readings(node: Node, side: str) -> tuple[str, str, str] | None:
    """How an operation stands beside ?:, and how newer and older releases of HTCondor read it."""
    match node:
        case Binary(operator="?:"):
            return None
        case Unary(operator=mark):
            if side == "left":
                return f"{mark}a ?: b", f"{mark}(a ?: b)", f"({mark}a) ?: b"
            return f"a ?: {mark}b", "a fault", f"a ?: ({mark}b)"
        case Conditional():
            return "a ?: b ? c : d", "(a ?: b) ? c : d", "a ?: (b ? c : d)"
        case Binary(operator=mark) | Logic(operator=mark):
            if side == "left":
                return f"a {mark} b ?: c", f"a {mark} (b ?: c)", f"(a {mark} b) ?: c"
            return f"a ?: b {mark} c", f"(a ?: b) {mark} c", f"a ?: (b {mark} c)"
        case _:
            return None
