"""Dry runs: what would become of jobs, or through other resources and shares. Nothing is stored.

Decisions: docs/adr/README.md, Jobs, answers and dry runs.
"""
