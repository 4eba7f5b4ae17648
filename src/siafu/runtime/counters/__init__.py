"""Counters of a run: activity of its servers, work and cost of their Lambdas, sums by epoch."""
