#!/usr/bin/env python3
"""A minimisation that never converges: `minimise.py SECONDS` computes until it has used that much CPU time.

Its job asks for much less CPU time, so the pilot ends it first; coming to the end would be an error of
the pilot's.
"""

import sys
import time

limit_cpu_seconds = float(sys.argv[1])
x = 0.5
print("minimising", flush=True)
while time.process_time() < limit_cpu_seconds:
    for _ in range(100_000):
        x = 3.99 * x * (1.0 - x)
print("gave up after", limit_cpu_seconds, "CPU seconds at", x)
