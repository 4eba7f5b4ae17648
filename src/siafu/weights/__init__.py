"""Weights: their versions, the gradients that come for them, and the step from one version to the next."""
