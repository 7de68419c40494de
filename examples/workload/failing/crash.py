#!/usr/bin/env python3
"""Dies by a segmentation fault, as programs in a lower language do."""

import os
import resource
import signal

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("unpacking the event record", flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
