"""Batch systems: one protocol (`backend`), and the local backend that implements it."""
