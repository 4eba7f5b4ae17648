"""The function on AWS: its package, what belongs to it, how it gets there and goes away."""
