"""A transformer over operations and networks, used as a residual model on top of physics.

Training needs torch: `fit` imports it, and is itself imported inside functions only. Predicting runs without torch.
"""
