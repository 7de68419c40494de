"""Durable state: schema, migrations, journal (group commit), queries by noun."""
