"""Predictors of operations, their composition to networks, and how good they are.

Here lies what all predictors have in common (`contract`, `operation_predictions`), the predictor of any GPU
(`predictor`) with what loops of a chip add (`chip`), that of a CPU (`cpu`), and what explains answers (`explanation`).
The rooms build on one another in this order, and a test holds them to it: formats, physics, intervals, the files of
this folder, board, networks, regressors, model, transformer, fitting, evaluation.
"""
