"""The Dorylus paper's tables and figures, predicted by virtual time and set beside what was published."""
