"""Wiring and loops: the only place that builds the parts, and the only one that sleeps."""

from lodesman.daemon.background import run_background
from lodesman.daemon.server import run_server

__all__ = ["run_background", "run_server"]
