"""The pilot: a placeholder job that fetches and runs jobs on the worker node where it starts. One zipapp, standard
library only, Python 3.9 and later. The way of one attempt through the modules:
`server_threads` (claim) -> `roster` (admit, hold to limits) -> `payload` (run, by `launch` and `reaper`) ->
`decisions` (why it ended) -> `output` (pack) -> `outbox` (upload, report). `loop` holds them together.
"""
