"""The machines in virtual time: modelled or random durations, seeded faults, and a checker that sees the truth."""
