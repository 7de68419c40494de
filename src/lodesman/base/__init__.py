"""What all rooms stand on: errors, the kernel, files that last. The standard library alone: it travels to nodes.

Decisions: docs/adr/README.md, The whole house.
"""
