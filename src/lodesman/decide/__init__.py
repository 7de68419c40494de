"""Decisions: facts, the time and a random number generator in; what to do and the reasons out."""
