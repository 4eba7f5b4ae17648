"""The machines of a run: events in, instructions out. No thread, socket, clock or random number in here."""
