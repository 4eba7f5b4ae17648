"""Plans: what this machine does in a second, what other machines would, and which of them train a graph best for the money."""
