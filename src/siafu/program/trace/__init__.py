"""Tensor phases traced to tensor programs: lists of operations, forth and back."""
