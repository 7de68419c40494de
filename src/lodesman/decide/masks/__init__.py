"""Sets as the bits of one integer: member i is bit i of a mask (ADR 0028).

Decisions: docs/adr/README.md, Matching and limits.
"""
