"""The dashboard: a web page of all runs in a directory, live. It reads what runs write, and never imports PyTorch."""
