"""The pilot: a placeholder job that fetches jobs and runs them where it starts. The way of one attempt: `server_threads`
(claim) -> `roster` (admit) -> `payload` (run, by `launch` and `reaper`) -> `decisions` (why it ended) -> `output` (pack) ->
`outbox` (upload, report). `loop` holds them together.

Decisions: docs/adr/README.md, Pilots and sites.
"""
