"""What HTCondor's own library says, in a process of its own: a line of JSON in (two ads, expressions), a line out.

Run by a Python that has the package `htcondor`; user text can end that process.
"""

import json
import sys

import classad2  # type: ignore[import-not-found]
import htcondor2  # type: ignore[import-not-found]  # noqa: F401 - with it, names without MY and TARGET are looked up in both, as the negotiator does


def plain(value, *scope):
    if isinstance(value, classad2.Value):
        return {"special": "undefined" if value == classad2.Value.Undefined else "error"}
    if isinstance(value, classad2.ClassAd):
        return {"ad": sorted(name.lower() for name in value)}
    if isinstance(value, classad2.ExprTree):
        return plain(value.eval(*scope), *scope)
    return [plain(one, *scope) for one in value] if isinstance(value, list) else value


for line in sys.stdin:
    ask = json.loads(line)
    my, target = classad2.ClassAd(ask["my"]), classad2.ClassAd(ask["target"])
    values = [plain(classad2.ExprTree(text).eval(my, target), my, target) for text in ask["expressions"]]
    sys.stdout.write(json.dumps({"values": values, "match": bool(my.symmetricMatch(target))}) + "\n")
    sys.stdout.flush()
