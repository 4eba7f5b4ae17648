"""Gathers whose rows are on disk: sums, maxima and attention by groups of targets."""
