"""Gathers laid out by columns: each server gathers a slice of all vertices' rows."""
