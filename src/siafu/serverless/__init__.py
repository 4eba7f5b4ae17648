"""Serverless threads: what runs on a Lambda, what decides how many there are, and what starts them."""
