"""Gathers of messages that a function makes for each edge."""
