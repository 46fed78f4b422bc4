"""Predictors for GPUs of which nothing was measured: physics times a residual model that was learned on other GPUs.

Here are the residual models of boosted trees and of physics alone; the transformer has a room of its
own.
"""
