"""Intervals of predictions, from errors on operations and networks that were held out.

How errors are grouped, scaled and ranked is decided here; `evaluation.calibrating` collects them. This room may import
formats and physics.
"""
