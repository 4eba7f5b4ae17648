"""Kinds of stages: for each, how its tasks run, what they cost and what they hold. `registry` knows them all."""
