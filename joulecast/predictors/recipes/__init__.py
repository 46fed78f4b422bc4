"""Recipes: the settings of each kind of predictor, as they are written in TOML files under `predictors/`.

A new predictor or setting starts here. Recipes are plain data and import no other part of `joulecast.predictors`.
"""
