"""Questions to the database, by noun. Each takes a read connection, or the connection of a transaction."""
