"""What the writer does: each command checks its preconditions, writes, and returns the answer.

Decisions: docs/adr/README.md, The store and the writer.
"""
