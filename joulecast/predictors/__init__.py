"""Predictors of operations, their composition to networks, and how good they are.

Here lies what all predictors have in common (`contract`, `operation_predictions`), the predictor of a GPU that was
measured (`predictor`) and what explains its answers (`explanation`). The rooms build on one another in this order, and
a test holds them to it: formats, recipes, physics, intervals, measured, the files of this folder, networks,
regressors, model, transformer, fitting, evaluation.
"""
