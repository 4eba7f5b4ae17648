"""Servers as Ray actors: Ray places, starts, watches and ends them. Nothing else in this package imports Ray."""
