"""Wiring and loops: the only place that builds the parts, and the only one that sleeps."""
