"""The pilot: a placeholder job that fetches and runs jobs on the worker node where it woke up.

One zipapp, standard library only, Python 3.9 and later. The way of one attempt through the modules:
`claims` (ask) -> `roster` (admit) -> `payload` (run, by `launch` and `reaper`, watched by `limits`) ->
`outcome` (why it ended) -> `output` (pack) -> `outbox` (upload, report). `loop` holds them together.
"""
