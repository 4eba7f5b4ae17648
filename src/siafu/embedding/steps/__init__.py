"""Steps of a batch of triples: negatives, scores, losses, gradients, updates; and the batches of an epoch."""
