"""The dashboard: a web page of all runs in a directory, live. It reads the files of runs, and never imports PyTorch."""
