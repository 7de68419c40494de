"""A resource configuration from one or many texts, CFG and TOML mixed, checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from lodesman.cfg import parse_cfg
from lodesman.errors import LodesmanError, SyntaxFault, TooLarge
from lodesman.resources.build import ResourceConfig, build
from lodesman.resources.draft import Draft, Fault
from lodesman.resources.load_cfg import CFG_SECTIONS, fill_from_cfg, note_vos
from lodesman.resources.load_toml import fill_from_toml, parse_toml
from lodesman.resources.model import Source

TOML_SUFFIX = ".toml"
_POSITION = re.compile(r"\Aline [0-9]+, (?=column )")


def load_resources(
    texts: Iterable[tuple[str, str]], *, vos: Iterable[str] = (), faults: Iterable[Fault] = ()
) -> ResourceConfig:
    """The configuration in all texts together, each given as (file name, text); `*.toml` is TOML, else CFG.

    Several files may speak of one site, CE or queue: what they say is put together, and what two of them say must
    be the same. `faults` are those that the caller has found before. Raises InvalidConfig whose data has `faults`:
    all faults of all texts, those that cannot be read among them.
    """
    draft = Draft(vos)
    draft.faults.extend(faults)
    # All VOs are known before the first overlay is read; then what the files say, in their order.
    fillers: list[Callable[[], None]] = []
    for file, text in texts:
        slips: list[SyntaxFault] = []
        try:
            fillers.append(_filler(draft, file, text, slips))
        except (SyntaxFault, TooLarge) as fault:
            draft.faults.append(fault_of(fault, file))
        draft.faults.extend(fault_of(slip, file) for slip in slips if _concerns_us(slip))
    for fill in fillers:
        fill()
    return build(draft)


def _filler(draft: Draft, file: str, text: str, slips: list[SyntaxFault]) -> Callable[[], None]:
    """What writes a text into the draft. Raises SyntaxFault, TooLarge; `slips` gets what is wrong in a line."""
    if file.lower().endswith(TOML_SUFFIX):
        return partial(fill_from_toml, draft, parse_toml(text, source=file), text=text, file=file)
    root = parse_cfg(text, source=file, faults=slips)
    note_vos(draft, root)
    return partial(fill_from_cfg, draft, root, file=file)


def _concerns_us(slip: SyntaxFault) -> bool:
    """Whether it stands where something is read. DIRAC's own files, of which most is for other programs, give options
    twice there.
    """
    first = str(slip.data.get("section", "")).strip("/").partition("/")[0]
    return not first or first in CFG_SECTIONS


def fault_of(error: LodesmanError, file: str) -> Fault:
    """What a reader of a text complained of, as one fault of many; the line is told by its place."""
    line, section = error.data.get("line", 0), error.data.get("section", "")
    message = _POSITION.sub("", str(error)).rstrip(".")
    place = Source(file=file, section=str(section), line=line if isinstance(line, int) else 0)
    return Fault(message=message, source=place)
