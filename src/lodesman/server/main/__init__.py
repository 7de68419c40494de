"""Wiring and loops: the only place that builds the parts, and the only one that sleeps.

Decisions: docs/adr/README.md, Processes and loops.
"""
