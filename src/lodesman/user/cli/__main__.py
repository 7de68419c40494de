"""`python -m lodesman.user.cli`: the same as `lode`."""

import sys

from lodesman.user.cli import main

sys.exit(main())
