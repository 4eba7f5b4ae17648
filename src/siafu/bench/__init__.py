"""Measurements of speed, side by side with others in one run."""
