"""A transformer over operations and networks, used as a residual model on top of physics.

`model`, `fit` and `files` need torch and are imported inside functions; predicting takes `tokens`, `encoder` and
`attentive`, which do without. What `model` computes is written a second time in `onnx`: change both. The rooms before
this one may be imported, `contract` and `composition`.
"""
