"""Regressors: trees and a perceptron, with how each is fitted, stored and served.

A new regressor goes here, with its storage as arrays: no pickle is ever read. scikit-learn, XGBoost and torch are
imported inside functions, because predicting needs none of them. `descent` needs torch, so it is imported
inside functions, too. `contract` says what a regressor promises, `predictor` what its inputs are.
"""
