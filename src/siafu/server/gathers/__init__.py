"""Gathers on a graph server: for each, how it runs, what it costs and what it holds. `registry` knows them all."""
