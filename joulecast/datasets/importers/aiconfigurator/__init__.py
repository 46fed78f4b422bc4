"""Kernels of LLM engines, measured by github.com/ai-dynamo/aiconfigurator: its tables, and rules of plausibility."""
