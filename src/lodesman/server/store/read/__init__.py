"""Questions to the database, by noun."""
