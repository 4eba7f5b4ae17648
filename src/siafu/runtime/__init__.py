"""Runtimes: what drives the pipeline's machines. `local`: threads of this process; `simulated`: virtual time."""
