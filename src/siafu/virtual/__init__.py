"""Runs in virtual time: the machines of the pipeline with modelled durations, for plans."""
