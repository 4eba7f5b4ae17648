"""Objectives: what is learnt, how it is counted, and which of two scores is better.

`metric` and `score` are pure logic and are imported by themselves, without PyTorch: this package re-exports nothing.
"""
