"""Running tensor programs: with PyTorch on a server, with NumPy alone on a Lambda."""
