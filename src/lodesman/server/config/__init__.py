"""The server's configuration: one TOML file and the resource files it names, checked as a whole.

Decisions: docs/adr/README.md, Processes and loops.
"""

from lodesman.server.config.reading import RefusedConfig, load_config
from lodesman.server.config.sections import ServerFile
from lodesman.server.config.server_config import ServerConfig, SourceFiles, Texts

__all__ = ["RefusedConfig", "ServerConfig", "ServerFile", "SourceFiles", "Texts", "load_config"]
