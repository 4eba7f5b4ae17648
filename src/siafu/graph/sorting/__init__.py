"""Edges and records sorted in bounded memory."""
