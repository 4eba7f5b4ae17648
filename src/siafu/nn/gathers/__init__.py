"""Gathers as layers name them, and as autograd functions."""
