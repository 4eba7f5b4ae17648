"""Trainings on pairs of vertices by plain autograd: links, ranks, and their loop to the best epoch."""
