"""The command line `lode`. What is slow to load is imported by the command that needs it: start-up time matters."""

from lodesman.cli.start import main

__all__ = ["main"]
