"""Entries of the zoo: their format, and how each sort of predictor is written and read."""
