"""How programs of users reach a server: its address, the token, typed calls, files there and back.

The command line and the Python API are made of it.
"""
