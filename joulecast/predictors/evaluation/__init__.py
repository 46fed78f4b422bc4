"""How good a predictor is on what it has not seen: errors, the intervals that are made of them, reports.

What is left out together, and which numbers are reported, changes here. Every other room may be imported; none imports
this one.
"""
