"""Functions of edges: the machine that runs them element by element, their messages, relations with a matrix each."""
