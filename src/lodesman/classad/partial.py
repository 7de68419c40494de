"""What can be said of an expression before the other ad is known: what it asks of it, and what is left of it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from lodesman.classad.ads import EMPTY, Ad
from lodesman.classad.closures import evaluate
from lodesman.classad.nodes import (
    AdLiteral,
    Binary,
    Conditional,
    Constant,
    FunctionCall,
    ListLiteral,
    Logic,
    Name,
    Node,
    Select,
    Subscript,
    Unary,
    children,
    constant_of,
    walk,
)
from lodesman.classad.values import STRICT, Special, is_ad, is_true, lower, truth

_SIDES = frozenset({"my", "target", "parent"})
_ASKING_BOTH = STRICT.keys() - {"=?=", "=!="}


class References(Struct, frozen=True, kw_only=True):
    """Attributes that an expression may ask for, in small letters: of its own ad, and of the other one."""

    own: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()


def references(node: Node, my: Ad = EMPTY) -> References:
    """What an expression in an ad asks for, also by way of that ad's other attributes.

    A name without MY or TARGET that the ad lacks is one of the other ad.
    """
    own: set[str] = set()
    other: set[str] = set()
    todo: list[tuple[Node, frozenset[str]]] = [(node, frozenset())]
    while todo:
        one, around = todo.pop()
        key = ""
        match one:
            case Select(base=Name(key="target"), key=name):
                other.add(name)
                continue
            case Select(base=Name(key="my"), key=name) | Name(key=name) if (
                name not in _SIDES and name not in around
            ):
                key = name
            case AdLiteral(pairs=pairs):
                around |= {lower(name) for name, _ in pairs}
            case _:
                pass
        if isinstance(one, Name) and key and key not in my.entries:
            other.add(key)
        elif key and key not in own:
            own.add(key)
            entry = my.entries.get(key)
            if entry is not None:
                todo.append((entry.node, frozenset()))
        if not isinstance(one, Select) or not isinstance(one.base, Name) or one.base.key not in _SIDES:
            todo += [(part, around) for part in children(one)]
    return References(own=frozenset(own), other=frozenset(other))


def flatten(node: Node, my: Ad = EMPTY) -> Node:  # noqa: C901, PLR0911 - a case for each kind of node
    """The expression with the values of its own ad put in, and what is known then worked out.

    What asks for the other ad, for the time or within a nested ad stays. In a match it is worth the same.
    """
    match node:
        case Name(key=key) if key not in _SIDES:
            return _known(node, key, my)
        case Select(base=Name(key="my"), key=key):
            return _known(node, key, my)
        case Constant() | Name() | Select() | AdLiteral():
            return node
        case Logic():
            return _logic(node, my)
        case Unary(operand=operand):
            return _folded(replace(node, operand=flatten(operand, my)))
        case Binary():
            return _folded(_with_sides(node, flatten(node.left, my), flatten(node.right, my)))
        case Subscript(base=base, index=index):
            return _folded(replace(node, base=flatten(base, my), index=flatten(index, my)))
        case Conditional(condition=condition, yes=yes, no=no):
            return _choice(
                replace(node, condition=flatten(condition, my), yes=flatten(yes, my), no=flatten(no, my))
            )
        case FunctionCall(arguments=arguments):
            return _folded(replace(node, arguments=tuple([flatten(one, my) for one in arguments])))
        case ListLiteral(items=items):
            return replace(node, items=tuple([flatten(one, my) for one in items]))


def _with_sides(node: Binary, left: Node, right: Node) -> Binary:
    """As `replace`, which takes several times as long."""
    if left is node.left and right is node.right:
        return node
    return Binary(
        operator=node.operator, left=left, right=right, start=node.start, stop=node.stop, depth=node.depth
    )


def _with_operands(node: Logic, operands: tuple[Node, ...]) -> Logic:
    """As `replace`, which takes several times as long."""
    return Logic(
        operator=node.operator, operands=operands, start=node.start, stop=node.stop, depth=node.depth
    )


def can_be(node: Node) -> tuple[bool, bool]:
    """Whether it may be true and whether it may be false, as far as its constants say."""
    match node:
        case Constant(value=value):
            return is_true(value), truth(value) is False
        case Unary(operator="!", operand=operand):
            true, false = can_be(operand)
            return false, true
        case Logic(operator=operator, operands=operands):
            trues, falses = zip(*map(can_be, operands), strict=True)
            return (any(trues), all(falses)) if operator == "||" else (all(trues), any(falses))
        case Binary(operator=operator, left=left, right=right) if operator in _ASKING_BOTH:
            known = [one.value for one in (left, right) if isinstance(one, Constant)]
            possible = not any(isinstance(one, Special) for one in known)
            return possible, possible
        case Conditional(condition=condition, yes=yes, no=no):
            (first, second), one, other = can_be(condition), can_be(yes), can_be(no)
            return (first and one[0]) or (second and other[0]), (first and one[1]) or (second and other[1])
        case _:
            return True, True


def _known(node: Node, key: str, my: Ad) -> Node:
    value = my.constants.get(key)
    if value is None and key in my.entries and not references(Name(name=key, key=key), my).other:
        value = None if asks_clock(node, my) else evaluate(key, my)
    return node if value is None or is_ad(value) else Constant(value=value, start=node.start, stop=node.stop)


def asks_clock(node: Node, my: Ad) -> bool:
    """Whether what an expression of an ad is worth may change with the time, also by way of other attributes."""
    asked = references(node, my).own
    nodes = [node, *[my.entries[one].node for one in asked if one in my.entries]]
    return any(isinstance(one, FunctionCall) and one.key == "time" for part in nodes for one in walk(part))


def _folded(node: Node) -> Node:
    """A constant if all its parts are."""
    if isinstance(node, FunctionCall) and node.key == "time":
        return node
    for part in children(node):
        if constant_of(part) is None:
            return node
    return Constant(value=evaluate(node), start=node.start, stop=node.stop)


def _choice(node: Conditional) -> Node:
    if not isinstance(node.condition, Constant):
        return node
    found = truth(node.condition.value)
    if isinstance(found, Special):
        return Constant(value=found, start=node.start, stop=node.stop)
    return node.yes if found else node.no


def _logic(node: Logic, my: Ad) -> Node:
    """Operands that do not decide are left out; what follows one that does is never asked."""
    decides = node.operator == "||"
    kept: list[Node] = []
    for operand in node.operands:
        one = flatten(operand, my)
        found = truth(one.value) if isinstance(one, Constant) else None
        if found is None or isinstance(found, Special):
            kept.append(one)
        elif found is decides:
            kept.append(Constant(value=decides, start=one.start, stop=one.stop))
            break
    if not kept:
        return Constant(value=not decides, start=node.start, stop=node.stop)
    if len(kept) == 1:
        # One condition is still a condition: 5 && true is true, not 5.
        neutral = Constant(value=not decides, start=node.stop, stop=node.stop)
        return _folded(_with_operands(node, (kept[0], neutral)))
    return _folded(_with_operands(node, tuple(kept)))
