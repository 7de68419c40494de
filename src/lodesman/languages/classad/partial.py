"""What an expression asks of an unknown ad, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from lodesman.languages.classad.ads import EMPTY, Ad, AdAttribute, Asked, Run
from lodesman.languages.classad.closures import evaluate
from lodesman.languages.classad.contexts import CONTEXTS
from lodesman.languages.classad.functions import CLOCKS
from lodesman.languages.classad.nodes import (
    SCOPE_WORDS,
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
)
from lodesman.languages.classad.values import ERROR, STRICT, Special, is_ad, is_true, lower, truth

_SIDES = frozenset({"my", "target", "parent"})
_ASKING_BOTH = STRICT.keys() - {"=?=", "=!="}


class References(Struct, frozen=True, kw_only=True):
    """Attributes that an expression may ask for, in small letters."""

    own: frozenset[str] = frozenset()  # Of its own ad.
    other: frozenset[str] = frozenset()  # Of the other ad.


def references(node: Node, my: Ad = EMPTY) -> References:
    """What an expression asks for, also by other attributes of its ad.

    A name without MY or TARGET that the ad lacks is one of the other ad.
    """
    own: set[str] = set()
    other: set[str] = set()
    todo = [_find_asked(node)]
    while todo:
        name = todo.pop()
        here = name.bare & my.entries.keys()
        other |= name.target | (name.bare - here)
        new = (here | name.my) - own
        own |= new
        todo += [asked_by(my.entries[key]) for key in new & my.entries.keys()]
    return References(own=frozenset(own), other=frozenset(other))


def asked_by(entry: AdAttribute) -> Asked:
    """What an attribute's expression itself asks."""
    if entry.asked is None:
        entry.asked = _find_asked(entry.node)
    return entry.asked


def _find_asked(node: Node) -> Asked:
    names: dict[str, set[str]] = {"": set(), "my": set(), "target": set()}
    clock = whole = False
    todo: list[tuple[Node, frozenset[str]]] = [(node, frozenset())]
    while todo:
        expression, around = todo.pop()
        match expression:
            case Select(base=Name(key=("my" | "target") as side), key=key):
                if side == "target" or (key not in _SIDES and key not in around):
                    names[side].add(key)
                continue
            case Select(key=key):
                whole |= key in SCOPE_WORDS
                names["target"].update(_beyond(expression))
            case Name(key=key):
                whole |= key in _SIDES
                names[""].update({key} - _SIDES - around)
            case AdLiteral(pairs=pairs):
                around |= {lower(name) for name, _ in pairs}
            case FunctionCall(key=key):
                clock |= key in CLOCKS
                whole |= key == "eval"
            case _:
                pass
        todo += [(part, around) for part in children(expression)]
    bare, my, target = map(frozenset, names.values())
    return Asked(bare, my, target, clock, whole)


def _beyond(node: Select) -> set[str]:
    return {node.key} if isinstance(node.base, Select) and node.base.key in {"target", "other"} else set()


def dependents(ad: Ad, is_sought: Callable[[Asked], bool]) -> set[str]:
    """An ad's attributes, in small letters, that ask for what is sought, also by others.

    It takes as long as the ad is large.
    """
    askers: dict[str, list[str]] = {}
    todo: list[str] = []
    for key, entry in ad.entries.items():
        if key in ad.constants:
            continue
        names = asked_by(entry)
        for name in names.bare | names.my:
            askers.setdefault(name, []).append(key)
        if is_sought(names):
            todo.append(key)
    dependent = set(todo)
    while todo:
        new = [key for key in askers.get(todo.pop(), ()) if key not in dependent]
        dependent.update(new)
        todo += new
    return dependent


def flatten(node: Node, my: Ad = EMPTY) -> Node:
    """The expression with its own ad's values, worked out as far as known.

    What asks for the other ad, for the time or within a nested ad stays. A match has the same value; ERROR after too
    many steps.
    """
    run = Run()
    flat = _flat(node, my, run)
    return Constant(value=ERROR, start=node.start, stop=node.stop) if run.is_spent else flat


def _flat(node: Node, my: Ad, run: Run) -> Node:  # noqa: C901, PLR0911, PLR0912 - a case for each kind of node
    match node:
        case Name(key=key) if key not in _SIDES:
            return _known(node, key, my, run)
        case Select(base=Name(key="my"), key=key):
            return _known(node, key, my, run)
        case Constant() | Name() | Select() | AdLiteral():
            return node
        case Logic():
            return _logic(node, my, run)
        case Unary(operand=operand):
            return _fold(replace(node, operand=_flat(operand, my, run)), run)
        case Binary():
            return _fold(_with_sides(node, _flat(node.left, my, run), _flat(node.right, my, run)), run)
        case Subscript(base=base, index=index):
            return _fold(replace(node, base=_flat(base, my, run), index=_flat(index, my, run)), run)
        case Conditional(condition=condition, yes=yes, no=no):
            return _choice(
                replace(
                    node, condition=_flat(condition, my, run), yes=_flat(yes, my, run), no=_flat(no, my, run)
                )
            )
        case FunctionCall(key=key) if key in CONTEXTS or key in CLOCKS:
            return node
        case FunctionCall(arguments=arguments):
            return _fold(
                replace(node, arguments=tuple([_flat(argument, my, run) for argument in arguments])), run
            )
        case ListLiteral(items=items):
            return replace(node, items=tuple([_flat(argument, my, run) for argument in items]))


def _with_sides(node: Binary, left: Node, right: Node) -> Binary:
    """As `replace`, several times faster."""
    if left is node.left and right is node.right:
        return node
    return Binary(
        operator=node.operator, left=left, right=right, start=node.start, stop=node.stop, depth=node.depth
    )


def _with_operands(node: Logic, operands: tuple[Node, ...]) -> Logic:
    """As `replace`, several times faster."""
    return Logic(
        operator=node.operator, operands=operands, start=node.start, stop=node.stop, depth=node.depth
    )


def can_be(node: Node) -> tuple[bool, bool]:
    """Whether it may be true, and false, by its constants."""
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
            constants = [part.value for part in (left, right) if isinstance(part, Constant)]
            possible = not any(isinstance(part, Special) for part in constants)
            return possible, possible
        case Conditional(condition=condition, yes=yes, no=no):
            (first, second), part, other = can_be(condition), can_be(yes), can_be(no)
            return (first and part[0]) or (second and other[0]), (first and part[1]) or (second and other[1])
        case _:
            return True, True


def _known(node: Node, key: str, my: Ad, run: Run) -> Node:
    value = my.constants.get(key)
    if value is None and key in my.entries and not references(Name(name=key, key=key), my).other:
        value = None if asks_clock(node, my) else evaluate(key, my, run=run)
    return node if value is None or is_ad(value) else Constant(value=value, start=node.start, stop=node.stop)


def asks_clock(node: Node, my: Ad) -> bool:
    """Whether its value may change with the time, also by other attributes."""
    names = references(node, my).own & my.entries.keys()
    return _find_asked(node).clock or any(asked_by(my.entries[name]).clock for name in names)


def _fold(node: Node, run: Run) -> Node:
    for part in children(node):
        if constant_of(part) is None:
            return node
    return Constant(value=evaluate(node, run=run), start=node.start, stop=node.stop)


def _choice(node: Conditional) -> Node:
    if not isinstance(node.condition, Constant):
        return node
    decision = truth(node.condition.value)
    if isinstance(decision, Special):
        return Constant(value=decision, start=node.start, stop=node.stop)
    return node.yes if decision else node.no


def _logic(node: Logic, my: Ad, run: Run) -> Node:
    """Leave out operands that do not decide, and all behind one that does."""
    decides = node.operator == "||"
    kept: list[Node] = []
    for operand in node.operands:
        flat = _flat(operand, my, run)
        decision = truth(flat.value) if isinstance(flat, Constant) else None
        if decision is None or isinstance(decision, Special):
            kept.append(flat)
        elif decision is decides:
            kept.append(Constant(value=decides, start=flat.start, stop=flat.stop))
            break
    if not kept:
        return Constant(value=not decides, start=node.start, stop=node.stop)
    if len(kept) == 1:
        # One condition is still a condition: 5 && true is true, not 5.
        neutral = Constant(value=not decides, start=node.stop, stop=node.stop)
        return _fold(_with_operands(node, (kept[0], neutral)), run)
    return _fold(_with_operands(node, tuple(kept)), run)
