"""Measurements as predictors learn from them: one row per operation, and what is held out together.

How repeats are put together, and which operations count as alike, changes here. The room physics may be imported.
"""
