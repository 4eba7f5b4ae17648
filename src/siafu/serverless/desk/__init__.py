"""A server's side of the talk with Lambdas."""
