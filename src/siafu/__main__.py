"""`python -m siafu`: the command where its script is not on the path."""

from siafu.cli import main

if __name__ == "__main__":
    main()
