"""HTTP: decode, authorise, call a service, encode.

Decisions: docs/adr/README.md, Calls and HTTP.
"""
