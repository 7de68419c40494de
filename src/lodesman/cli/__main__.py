"""`python -m lodesman.cli`: the same as `lode`."""

import sys

from lodesman.cli import main

sys.exit(main())
