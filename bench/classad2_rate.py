"""Two-sided matches/s of HTCondor's library, run by a Python that has it: ads as JSON in, the rate of the best round out.

The library is given the ads once, as the negotiator has them.
"""

import json
import sys
import time

import classad2  # type: ignore[import-not-found]
import htcondor2  # type: ignore[import-not-found]  # noqa: F401 - with it, names are looked up in both ads, as the negotiator does

asked = json.load(sys.stdin)
request = classad2.parseOne(asked["request"], classad2.ParserType.Old)
sites = [classad2.parseOne(text, classad2.ParserType.Old) for text in asked["sites"]]
matched = sum(request.symmetricMatch(site) for site in sites)
best = 0.0
for _ in range(asked["rounds"]):
    begun = time.process_time()
    for site in sites:
        request.symmetricMatch(site)
    best = max(best, len(sites) / (time.process_time() - begun))
print(json.dumps({"rate": best, "matched": matched}))
