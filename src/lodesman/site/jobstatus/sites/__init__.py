"""Doors to batch systems: which jobs run by their record, and how they are made to end or drain."""
