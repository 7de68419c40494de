"""HTTP/JSON client of the server: what the pilot and the command line speak with (DESIGN 3.1).

Runs on Python 3.9 with the standard library only: it travels in the pilot.
"""

from lodesman.client.address import is_loopback, parse_server
from lodesman.client.connection import Client, Retry, sha256_of
from lodesman.client.faults import Aborted, BadChecksum
from lodesman.client.submit_pools import ServedPools, submit_pools_for_queues

__all__ = [
    "Aborted",
    "BadChecksum",
    "Client",
    "Retry",
    "ServedPools",
    "is_loopback",
    "parse_server",
    "sha256_of",
    "submit_pools_for_queues",
]
