"""Layouts of gathers, by vertices or by columns: their names, their traffic, the choice."""
