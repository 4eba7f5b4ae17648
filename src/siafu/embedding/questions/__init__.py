"""Questions to embeddings by name, scores of files, vectors for other programs."""
