"""Servers as processes on many machines, placed and watched by Ray."""
