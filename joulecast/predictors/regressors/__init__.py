"""What learns numbers from features, and how that is stored and served: trees, a Gaussian process, a perceptron.

A new regressor goes here, with a way to arrays and back: no pickle is ever read. scikit-learn, XGBoost, torch and ONNX
converters are imported inside functions, because predicting needs none of them; `muon` and `perceptron_fit` need torch,
and are imported so. The rooms before this one may be imported, `contract` for what a regressor promises, and
`predictor` for what it is given on a GPU that was measured.
"""
