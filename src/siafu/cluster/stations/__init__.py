"""A server as a process of its own, and its machine's notice that it will be taken away."""
