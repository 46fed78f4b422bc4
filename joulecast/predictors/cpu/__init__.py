"""Prediction on a CPU from what was measured on this model of CPU: one operation after the other, time and power."""
