"""What losses of rented machines do to a training: traces, replays, and the spread of time and dollars."""
