"""ClassAds, the language in which jobs and sites say what they need of each other (as in HTCondor).

`tokens` and `parse` read texts, `nodes` are their trees, `write` prints them. `values` and `functions` (with `texts`,
`searches`, `policies`, `words`, `times`, `contexts`) define operators and functions, `patterns` (with `marks` and
`characters`) and `regexp` regular expressions. `closures` evaluates exactly, `fast` matches sooner, `partial` works
before the other ad is known, `clauses` explains.
"""

from lodesman.languages.classad.ads import EMPTY, Ad, Run
from lodesman.languages.classad.closures import evaluate, matches
from lodesman.languages.classad.nodes import Node
from lodesman.languages.classad.parse import parse_ad, parse_ads, parse_expression
from lodesman.languages.classad.values import ERROR, UNDEFINED, Value
from lodesman.languages.classad.write import write_ad, write_expression, write_value

__all__ = [
    "EMPTY",
    "ERROR",
    "UNDEFINED",
    "Ad",
    "Node",
    "Run",
    "Value",
    "evaluate",
    "matches",
    "parse_ad",
    "parse_ads",
    "parse_expression",
    "write_ad",
    "write_expression",
    "write_value",
]
