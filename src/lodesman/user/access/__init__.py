"""How programs of users reach a server; the command line and the Python API stand on it."""
