"""What learns numbers from features, and how that is stored and served: trees, a Gaussian process, both together.

A new regressor goes here, with a way to arrays and back: no pickle is ever read. scikit-learn, XGBoost and ONNX
converters are imported inside functions, because predicting needs none of them. The rooms before this one may be
imported, and `predictor` for what a regressor promises.
"""
