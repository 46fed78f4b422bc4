"""What answers look like: CSV tables, pictures, and the HTML that Jupyter shows.

Nothing here knows the values that are shown. Beside each kind of value lies a module that imports it and says how it is
shown, such as `predictors/networks/prediction_html.py`; no value imports such a module.
"""
