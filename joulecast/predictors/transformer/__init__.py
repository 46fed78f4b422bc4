"""A transformer over operations and networks, used as a residual model on top of physics.

Training needs torch: `model`, `fit` and `files` import it, and are themselves imported inside functions only.
Predicting needs `tokens`, `encoder` and `attentive`, which run without torch. The arithmetic of `model` is written a
second time in `encoder`, so a change of one must be made in the other.
"""
