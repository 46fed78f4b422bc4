"""Which predictors there are, with their settings, as TOML files under `predictors/` say them.

A new predictor or setting starts here. Settings are data: no other room is imported.
"""
