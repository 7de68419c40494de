"""Explanations and dry runs over the live state."""
