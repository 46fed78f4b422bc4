"""Predictors of operations, their composition to networks, and how good they are.

Here lies what all predictors have in common (`contract`, `operation_predictions`), the one of a GPU that was measured
(`predictor`), and the way from operations to a network (`composition`, `network_predictor`, `prepared`, `over_clocks`,
`prediction`, `explanation`). The rooms build on one another in this order, and a test holds them to it: formats,
recipes, physics, intervals, measured, regressors, any_gpu, transformer, fitting, evaluation. The first five need
nothing of what lies here; what lies here needs none of the last three.
"""
