"""Why jobs, pilots and CE queues wait: facts, verdict, suggestion.

Decisions: docs/adr/README.md, Jobs, answers and dry runs.
"""
