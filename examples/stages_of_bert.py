"""What do pre-training, fine-tuning and predicting with BERT cost in joules? Predicted for one GPU; nothing runs.

Run it with `python examples/stages_of_bert.py`. Pre-training is that of BERT-base by its paper (a million steps of 256
sequences of 512 tokens); fine-tuning and prediction are those of MRPC (3,668 and 1,725 pairs of sentences, 128 tokens).
"""

from __future__ import annotations

import joulecast
from joulecast.units import si

GPU = "V100 SXM2 32GB"
STAGES = (
    ("pre-training", "training", 32, 512, 1_000_000 * 256),
    ("fine-tuning, 3 epochs", "training", 32, 128, 3 * 3_668),
    ("prediction", "inference", 32, 128, 1_725),
)
"""Name, mode, sequences at a time, tokens of each, and sequences in all."""


def main() -> None:
    """Print joules of each stage and of a sequence of it."""
    print(f"BERT-base on {GPU}")
    for name, mode, batch, tokens, sequences in STAGES:
        prediction = joulecast.predict("bert_base", (batch, tokens), GPU, mode=mode)
        each_j = prediction.energy_j / batch
        print(f"{name:22}  {si(each_j * sequences / 3600, 'Wh'):>8}  {each_j:7.3f} J per sequence of {tokens} tokens")


if __name__ == "__main__":
    main()
