"""Memory: every array of a run, listed before any of them is allocated. `listing` makes the list."""
