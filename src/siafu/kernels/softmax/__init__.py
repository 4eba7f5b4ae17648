"""Softmax-weighted gathers: attention with its adjoint and buckets, and attention of pairs."""
