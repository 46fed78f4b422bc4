"""Measurements in the form that predictors learn from: one row per operation, and groups that are held out together.

How repeats are combined, and which operations are held out together, is decided here. This room may import physics.
"""
