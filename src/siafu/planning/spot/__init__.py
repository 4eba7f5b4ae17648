"""Losses of rented machines: traces of them, replays of a training, and the spread of its time and dollars."""
