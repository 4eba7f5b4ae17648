"""A model's forward pass recorded, and cut at its gathers."""
