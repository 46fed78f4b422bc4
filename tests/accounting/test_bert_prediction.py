"""What joulecast predicts for BERT, against what SMARAGDINE accounted.

Babakol and Liu ("Tensor-Aware Energy Accounting", ICSE 2024) found over 99 % of BERT's energy in its encoder, 40.7 %
of the forward and 48.2 % of the backward in attention. They ran BERT-base in TensorFlow, which computes attention as
product, softmax and product; so does this model.
"""

from pathlib import Path

import pytest

import joulecast
from joulecast.accounting.model_share import tree_by_module

pytest.importorskip("transformers")

ENCODER, FORWARD_ATTENTION, BACKWARD_ATTENTION = 0.99, 0.407, 0.482
BERT_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
GPUS = ("V100 SXM2 16GB", "RTX 2080 Ti", "T4", "A100 PCIe 40GB")


@pytest.fixture(scope="module")
def network():
    options = {"mode": "training", "precision": "fp32", "model_options": BERT_BASE}
    return joulecast.extract("bert_large_eager", (32, 128), **options)


@pytest.fixture(scope="module", params=GPUS)
def modules(request, network):
    return tree_by_module(joulecast.predict(network, gpu=request.param).tree())


def joules(modules, phase, part=""):
    return sum(value for (of, path), value in modules.items() if of == phase and path and part in path)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_nearly_all_energy_is_the_encoders(modules, phase):
    """Counts only what belongs to modules: autograd adds up the gradients of residuals outside of all modules."""
    assert joules(modules, phase, "encoder.") > ENCODER * joules(modules, phase)


def test_attention_takes_two_fifths_of_the_forward(modules):
    share = joules(modules, "forward", ".attention.") / joules(modules, "forward", "encoder.")
    assert share == pytest.approx(FORWARD_ATTENTION, abs=0.025)


def test_attention_takes_as_much_of_the_backward_and_not_what_was_accounted(modules):
    """The 48.2 % are not reached: each backward is predicted at about twice its forward, in attention as elsewhere.

    Gradients of the common input of the three projections are added up in no module (1.5 % of the backward), and
    TensorFlow's transposes and gradients of softmax and dropout are kernels of their own. Together these would not
    explain 8 points; nothing that was measured here says what does.
    """
    forward, backward = (
        joules(modules, phase, ".attention.") / joules(modules, phase, "encoder.") for phase in ("forward", "backward")
    )
    assert backward == pytest.approx(forward, abs=0.02)
    assert backward < BACKWARD_ATTENTION - 0.04


def test_the_row_of_the_five_sources_says_so(network):
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| S16 |"))
    on_v100 = tree_by_module(joulecast.predict(network, gpu=GPUS[0]).tree())
    shares = [
        joules(on_v100, phase, ".attention.") / joules(on_v100, phase, "encoder.") for phase in ("forward", "backward")
    ]
    assert f"{100 * shares[0]:.1f} % and {100 * shares[1]:.1f} %" in row
