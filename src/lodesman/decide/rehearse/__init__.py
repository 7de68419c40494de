"""Dry runs: what would become of jobs, or through other resources and shares. Nothing is stored."""
