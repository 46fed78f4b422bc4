"""Conversion of PyTorch's recurrent layers. On a GPU, cuDNN runs each as one operation."""

from __future__ import annotations

from typing import Any

from .calls import Bound, Converted


def _layer(kind: str, bound: Bound, hidden: Any, **attributes: Any) -> Converted:
    if "batch_sizes" in bound:  # a packed sequence: rows of all steps, with fewer rows in later steps
        rows, features = bound["data"].shape
        steps = bound["batch_sizes"].shape[0]
        shape = (steps, -(-rows // steps), features)
    else:
        first, second, features = bound["input"].shape
        shape = (second, first, features) if bound["batch_first"] else (first, second, features)
    return (
        kind,
        [shape],
        {
            "hidden_size": hidden.shape[-1],
            "num_layers": bound["num_layers"],
            "bidirectional": bound["bidirectional"],
            "bias": bound["has_biases"],
            **attributes,
        },
    )


def lstm(bound: Bound) -> Converted:
    """nn.LSTM. A projection makes its hidden state smaller than its cell state."""
    hidden, cells = bound["hx"]
    projected = hidden.shape[-1] if hidden.shape[-1] != cells.shape[-1] else 0
    return _layer("lstm", bound, cells, proj_size=projected)


def gru(bound: Bound) -> Converted:
    """nn.GRU."""
    return _layer("gru", bound, bound["hx"])


def rnn(bound: Bound) -> Converted:
    """nn.RNN, with tanh or relu."""
    return _layer("rnn", bound, bound["hx"])
