"""Features on disk: an order of batches whose features are mostly in memory, and the buffer that holds them (MariusGNN's COMET)."""
