"""Decisions about a graph server's Lambdas: the controller, and the number of Lambdas. No threads, no sockets."""
