"""What the event loop of the hot process keeps.

Decisions: docs/adr/README.md, Calls and HTTP.
"""
