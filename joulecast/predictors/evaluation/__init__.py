"""Errors of predictors on data left out of their training, the intervals made from these errors, and reports.

What is left out together, and which numbers are reported, is decided here. This room may import every other room of
predictors, and none of them imports it.
"""
