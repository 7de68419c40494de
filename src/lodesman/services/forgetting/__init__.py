"""What ended long ago, and what nobody needs any more, is forgotten."""
