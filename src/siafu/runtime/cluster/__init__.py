"""The cluster runtime: graph servers and weight servers as processes on many machines, placed and watched by Ray."""
