"""Doors to batch systems: which jobs run, by their own record, and how they are made to end or to drain."""
