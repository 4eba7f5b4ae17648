"""The machine of a run: how far it may go, when it is evaluated, saved, mended and ended."""
