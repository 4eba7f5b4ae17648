"""What a run costs: prices, and a meter of what was used."""
