"""Rows of a graph server: of intervals, constants and features; in memory, spilled, streamed or without their zeros."""
