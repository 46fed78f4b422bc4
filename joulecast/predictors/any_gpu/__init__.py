"""Predictors for GPUs of which nothing was measured: physics, corrected by what other GPUs showed.

Here are corrections by boosted trees, by nothing, and by several together; the one by a transformer has the next room.
The rooms before this one may be imported, `contract` and `composition`.
"""
