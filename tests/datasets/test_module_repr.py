"""From printed torch modules to Operations."""

import pytest
import torch
from torch import nn

from joulecast.datasets.importers.nicolai2025 import operation_from_repr
from joulecast.errors import InputError, UnknownNameError
from joulecast.extraction.models.torchvision_models import import_torchvision

IMAGE = (4, 8, 16, 16)
MODULES = [
    nn.Conv2d(8, 6, (3, 5), stride=2, padding=(1, 2), groups=2, bias=False),
    nn.Conv2d(8, 6, 3, dilation=2, padding="same"),
    nn.BatchNorm2d(8),
    nn.BatchNorm2d(8, affine=False),
    nn.ReLU(inplace=True),
    nn.GELU(),
    nn.SiLU(),
    nn.Sigmoid(),
    nn.Hardswish(),
    nn.Softmax(dim=1),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d((1, 1)),
    nn.Dropout(0.2),
    import_torchvision().ops.StochasticDepth(0.1, "row"),
]


@pytest.mark.parametrize("module", MODULES, ids=repr)
def test_shape_is_that_of_the_module(module):
    operation = operation_from_repr(repr(module), IMAGE)
    assert operation.output_shape == tuple(module.eval()(torch.zeros(IMAGE)).shape)
    assert operation.parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("module", [nn.Linear(16, 3), nn.LayerNorm((16,)), nn.LayerNorm([5, 16])], ids=repr)
def test_modules_of_rows(module):
    operation = operation_from_repr(repr(module), (4, 5, 16))
    assert operation.output_shape == tuple(module(torch.zeros(4, 5, 16)).shape)
    assert operation.parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("text", "shape", "error"),
    [
        ("Conv9d(1, 2)", IMAGE, UnknownNameError),
        ("__import__('os').system('true')", IMAGE, InputError),
        ("ReLU(", IMAGE, InputError),
        ("Linear(in_features=7, out_features=2, bias=True)", (4, 8), InputError),
        ("Conv2d(3, 6, kernel_size=(3, 3))", IMAGE, InputError),
        ("Conv2d(8, 6)", IMAGE, InputError),
        ("AdaptiveAvgPool2d()", IMAGE, InputError),
    ],
)
def test_representations_of_other_modules_are_refused(text, shape, error):
    with pytest.raises(error):
        operation_from_repr(text, shape)
