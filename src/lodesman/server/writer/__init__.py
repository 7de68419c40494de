"""What the writer does: each command checks its preconditions, writes, and returns the answer."""
