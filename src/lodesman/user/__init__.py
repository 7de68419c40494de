"""What a user's programs are made of: the command line, the Python API, and the way to the server.

Decisions: docs/adr/README.md, Users' programs.
"""
