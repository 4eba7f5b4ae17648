"""The machine: its processor, caches and memory."""
