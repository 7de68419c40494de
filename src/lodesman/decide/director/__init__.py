"""The director's decisions (`iteration.decide`): how many pilots, for which task queue, through which pool, where.

Decisions: docs/adr/README.md, The director and its places.
"""
