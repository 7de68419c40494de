"""The command line `lode`. All but click is imported by the command that needs it: start-up time matters."""

from lodesman.cli.root import main

__all__ = ["main"]
