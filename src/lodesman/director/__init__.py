"""The director's decisions: how many pilots, for which task queue, whose, through which pool, where.

Pure: snapshots in, decisions out; `now` and the random source are arguments. `iteration.decide` is one iteration; the
service around it stores the decision and drives submission pools and backends.
"""
