"""Changes of the database, by noun. Each takes the transaction of a command."""
