"""Lodesman: a pilot-based workload manager."""

__version__ = "0.1.0"
