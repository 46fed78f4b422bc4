"""Entries of the zoo: their format, and how each kind of predictor is written and read."""
