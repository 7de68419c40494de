"""What the server runs: its database, its writer and loops, HTTP, batch systems, configuration."""
