"""`python -m headwater.cli` is `headwater`."""

from . import main

main()
