"""Mini-batches on several servers: shares of a batch, features by vertices or by columns (P3), bytes that travel."""
