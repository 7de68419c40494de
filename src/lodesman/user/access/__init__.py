"""How programs of users reach a server."""
