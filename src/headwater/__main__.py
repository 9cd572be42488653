"""`python -m headwater` is the `headwater` command."""

from .cli import main

if __name__ == "__main__":
    main()
