"""Batch systems: one protocol (`backend`), and Slurm, Grid Engine, HTCondor, ARC and this machine behind it.

Decisions: docs/adr/README.md, Batch systems.
"""
