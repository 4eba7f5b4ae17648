"""Outputs of a trained model for a whole graph: predictions, hidden rows, labels smoothed along the edges."""
