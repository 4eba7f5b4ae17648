"""Weights: their versions, the gradients that come for them, and the step from one version to the next.

`policy` is pure logic and is imported by itself, without PyTorch: this package re-exports nothing.
"""
