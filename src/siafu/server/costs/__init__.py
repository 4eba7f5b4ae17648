"""Costs of stages and gathers: operations, bytes, and the arrays that they hold."""
