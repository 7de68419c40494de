"""The server's configuration: one TOML file and the resource files it names, checked as a whole."""

from lodesman.config.files import Stamps, Texts, Watched
from lodesman.config.reading import ServerConfig, load_config
from lodesman.config.sections import (
    AdminSection,
    PilotSection,
    ResourceSection,
    Sections,
    ServerSection,
    SubmitPoolSection,
)

__all__ = [
    "AdminSection",
    "PilotSection",
    "ResourceSection",
    "Sections",
    "ServerConfig",
    "ServerSection",
    "Stamps",
    "SubmitPoolSection",
    "Texts",
    "Watched",
    "load_config",
]
