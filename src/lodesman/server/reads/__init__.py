"""What answers requests that change nothing: lists, explanations, dry runs, on snapshots of the loops and the database.

Decisions: docs/adr/README.md, Jobs, answers and dry runs.
"""
