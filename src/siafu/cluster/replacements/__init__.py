"""Servers that are lost or move: those that take their places, warm copies, and where they are."""
