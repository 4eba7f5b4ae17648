"""The embedded runtime: every server in this process, one pool of threads, rows passed by reference."""
