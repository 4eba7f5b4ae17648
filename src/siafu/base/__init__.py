"""Tools for every room, none of which knows a graph: errors, files, threads, compilation, random numbers, pictures."""
