"""Dry runs: what a job, a resource or a share change would do, held against the live state; nothing is stored."""
