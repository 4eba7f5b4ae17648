"""What stages and gathers cost: operations, bytes, and the arrays that they hold."""
