"""Where Lambdas run: processes of this machine, or AWS."""
