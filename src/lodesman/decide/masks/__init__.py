"""Sets as the bits of one integer: member i of a table is bit i of a mask. The one place that knows how (ADR 0028).

Decisions: docs/adr/README.md, Matching and limits.
"""
