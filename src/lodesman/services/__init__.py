"""One script per use case: read a snapshot, decide, command."""
