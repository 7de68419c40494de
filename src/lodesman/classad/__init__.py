"""ClassAds, the language in which jobs and sites say what they need of each other (as in HTCondor).

`tokens` and `parse` read texts, `nodes` are their trees, `write` prints them; `values` are what they may be worth.
"""

from lodesman.classad.ads import EMPTY, Ad
from lodesman.classad.nodes import Node
from lodesman.classad.parse import parse_ad, parse_expression
from lodesman.classad.values import ERROR, UNDEFINED, Value
from lodesman.classad.write import write_ad, write_expression, write_value

__all__ = [
    "EMPTY",
    "ERROR",
    "UNDEFINED",
    "Ad",
    "Node",
    "Value",
    "parse_ad",
    "parse_expression",
    "write_ad",
    "write_expression",
    "write_value",
]
