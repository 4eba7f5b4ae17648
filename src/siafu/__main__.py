"""`python -m siafu`: the command where its script is not on the path."""

from siafu.command import main

if __name__ == "__main__":
    main()
