"""What a site runs without a server: $JOBSTATUS, vacating nodes, its own ads. The standard library alone.

Decisions: docs/adr/README.md, Pilots and sites.
"""
