"""Predictors of operations, their composition to networks, and how good they are."""
