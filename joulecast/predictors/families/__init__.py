"""Families of operations with physics and trees of their own: attention on tensor cores.

A family is one file that says which operations it covers, what physics expects them to take, and which inputs its
trees see. `fit.py` learns the ratio of measured device times, and of powers, to that; `learned.py` predicts it.
"""
