"""What every room may use, and that knows no graph: errors, files, threads, compilation, random numbers, pictures."""
