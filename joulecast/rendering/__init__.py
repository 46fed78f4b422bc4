"""Formats of answers: CSV tables, data frames, pictures, and HTML for Jupyter.

Nothing here depends on the values that are shown. Next to each kind of value is a module that imports it and formats
it, such as `predictors/networks/prediction_html.py`. Values never import these modules.
"""
