"""siafu.train and what a training comes to: its options, placement, trainer, run and explanation."""
