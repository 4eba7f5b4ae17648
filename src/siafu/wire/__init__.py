"""Messages between machines, and what carries them. Needs NumPy and ZeroMQ alone: a Lambda has nothing more."""
