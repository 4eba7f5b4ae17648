"""Code that runs on a Lambda: the zip holds this and what it imports."""
