"""What sites say of themselves, and how they regulate the flow of pilots towards themselves (SAM-Grid's brokering).

Decisions: docs/adr/README.md, Brokering.
"""
