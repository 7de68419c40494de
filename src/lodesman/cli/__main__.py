"""`python -m lodesman.cli`: the same as `lode`."""

from lodesman.cli import main

main()
