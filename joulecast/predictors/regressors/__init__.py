"""Regressors: trees, with how each is fitted, stored and served.

A new regressor goes here, with its storage as arrays: no pickle is ever read. scikit-learn and XGBoost are imported
inside functions, because predicting needs neither. `contract` says what a regressor promises, `predictor` what its
inputs are.
"""
