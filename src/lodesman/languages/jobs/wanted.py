"""What a filter asks of an attribute: `NAME=VALUE`, where the value is read as in a description."""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.attributes import ATTRIBUTES, PARAMETERS, Attribute, by_name
from lodesman.languages.jobs.record import shown
from lodesman.languages.jobs.values import Mistake

_ELSEWHERE: Final = MappingProxyType({
    "owner": "there is a filter for it: owner",
    "group": "there is a filter for it: group",
    "vo": "each user sees the jobs of one VO",
    "input_sandbox": "its files are kept by what is in them",
    **dict.fromkeys(("requirements", "stations"), "it is kept as one expression"),
    "consumables": "its amounts are kept in another form",
    **dict.fromkeys(("retry_on", "retry_memory_factor"), "it is kept as a rule of the attempts"),
    **dict.fromkeys(("after", "after_ok", "on_parent_failure"), "it is kept with the jobs that it names"),
})  # fmt: skip
_OWN: Final = "Names of your own: JobGroup and JobName."
_LIST: Final = "All are in docs/how-to/users.md, Attributes."
# Of names that may have been meant: letters of a beginning, and how much is alike.
_BEGINNING: Final = 3
_NEARNESS: Final = 0.7
_MOST_NEAR: Final = 3


class AskedAttribute(Struct, frozen=True):
    """An attribute and its value, of the type that a `JobSpec` has. Of a list: items that it has, among others."""

    attribute: Attribute
    value: Any


def read_wanted(text: str) -> AskedAttribute:
    """Raises InvalidRequest for a name that jobs are not found by, and for a value that no job can have."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise _refused(f"{shown(text)!r} is not NAME=VALUE", "As in CPUTime=1h or Tag=GPU.")
    attribute = by_name(name.strip())
    if attribute is None:
        raise _refused(f"jobs are not found by {shown(name.strip())}", _hint(name.strip()))
    if why := _ELSEWHERE.get(attribute.field):
        raise _refused(f"jobs are not found by {attribute.name}: {why}", "")
    try:
        return AskedAttribute(attribute, attribute.read(value))
    except Mistake as mistake:
        raise _refused(f"{attribute.name} {mistake}", f"Give {attribute.right}.") from None


def _hint(name: str) -> str:
    if name.casefold() in map(str.casefold, PARAMETERS):
        return "It makes the members of an array; each is a job."
    folded = name.casefold()
    known = {word.casefold(): one.name for one in ATTRIBUTES for word in (*one.aliases, one.name)}
    begun = [word for word in known if len(folded) >= _BEGINNING and word.startswith(folded)]
    near = [*get_close_matches(folded, known, _MOST_NEAR, _NEARNESS), *begun]
    found = list(dict.fromkeys(known[word] for word in near))[:_MOST_NEAR]
    return f"{', '.join(found)}? {_LIST}" if found else f"{_OWN} {_LIST}"


def _refused(words: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"where: {words}.", hint=hint, parameter="where")
