"""Reads of the database, by noun: each function is named for what it answers."""
