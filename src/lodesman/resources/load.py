"""A resource configuration from one or many texts, CFG and TOML mixed, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from lodesman.cfg import CfgSection, parse_cfg
from lodesman.errors import LodesmanError, SyntaxFault, TooLarge
from lodesman.resources.build import ResourceConfig, build
from lodesman.resources.draft import Draft
from lodesman.resources.load_cfg import fill_from_cfg, note_vos
from lodesman.resources.load_toml import fill_from_toml, parse_toml
from lodesman.resources.model import Source

TOML_SUFFIX = ".toml"


def load_resources(texts: Iterable[tuple[str, str]], *, vos: Iterable[str] = ()) -> ResourceConfig:
    """The configuration in all texts together, each given as (file name, text); `*.toml` is TOML, else CFG.

    Several files may speak of one site, CE or queue; one parameter given twice is a fault. Raises
    InvalidConfig whose data has `faults`: all faults of all texts, those that cannot be read among them.
    """
    draft = Draft(vos)
    cfgs: list[tuple[str, CfgSection]] = []
    for file, text in texts:
        try:
            if file.lower().endswith(TOML_SUFFIX):
                fill_from_toml(draft, parse_toml(text, source=file), text=text, file=file)
            else:
                cfgs.append((file, parse_cfg(text, source=file)))
        except (SyntaxFault, TooLarge) as fault:
            draft.fault(fault.message, _place(fault, file))
    for _, root in cfgs:
        note_vos(draft, root)
    for file, root in cfgs:
        fill_from_cfg(draft, root, file=file)
    return build(draft)


def _place(fault: LodesmanError, file: str) -> Source:
    line = fault.data.get("line", 0)
    return Source(file=file, line=line if isinstance(line, int) else 0)
