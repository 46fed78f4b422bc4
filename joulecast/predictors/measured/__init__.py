"""Measurements as predictors learn from them: one row per operation, and what is held out together.

How repeats are combined, and which operations are held out together, changes here. It may import the room physics.
"""
