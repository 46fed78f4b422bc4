"""From a recipe and datasets to a predictor.

`fit` takes any recipe; tables in the three files say which function fits which one. The rooms before this one may be
imported; what only predicts imports nothing from here.
"""
