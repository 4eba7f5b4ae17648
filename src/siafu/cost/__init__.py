"""Costs of a run: prices, and a meter of Lambdas."""
