"""A model as data: tensor programs, and what runs them. Imports nothing by itself: a Lambda has neither PyTorch nor Numba."""
