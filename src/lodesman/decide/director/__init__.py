"""The director's decisions (`iteration.decide`): how many pilots, for which task queue, through which pool, where."""
