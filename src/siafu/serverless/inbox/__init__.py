"""A server's side of its sessions with Lambdas."""
