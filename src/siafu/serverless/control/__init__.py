"""The controller of a graph server's Lambdas, and how many there are: decisions, no threads and no sockets."""
