"""Formats of answers: CSV tables, data frames, pictures, and HTML for Jupyter.

Nothing here depends on the values that are shown. Values import these modules, and never the other way round.
"""
