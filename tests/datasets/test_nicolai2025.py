"""The importer: its rules on a small synthetic export, and on the real one where it is at hand."""

import csv

import pytest
import torch
from torch import nn

from joulecast.datasets.importers.nicolai2025 import _COLUMNS, import_nicolai2025, operation_from_repr
from joulecast.errors import DatasetError, InputError, UnknownNameError
from joulecast.extraction.models.torchvision_models import import_torchvision

CONV = "Conv2d(8, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
A30 = "NVIDIA A30"


def row(campaign, module, time_s, power_w, *, mode="inference", gpu=A30, **more):
    values = {
        **dict.fromkeys(_COLUMNS, ""),
        "gpu": gpu,
        "tf32": "False",
        "mode": mode,
        "module": module,
        "input_shape": "(32, 8, 56, 56)",
        "time_s": time_s,
        "power_w": power_w,
        "energy_j": time_s * power_w,
        "started": "2024-11-10_15-41-44",
        "source_file": campaign,
        "source_blob": "0",
    }
    return {**values, **more}


def written(folder, rows):
    for name, column, content in (("operations", "module", rows), ("networks", "network", [])):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*_COLUMNS, column])
            writer.writeheader()
            writer.writerows(content)
    return folder


def test_train_mode_is_recognized_by_an_identity_that_takes_time(tmp_path):
    depth = "StochasticDepth(p=0.1, mode=row)"
    norm = "BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
    rows = [
        row("train", depth, 2e-4, 160.0),
        row("train", norm, 4e-4, 160.0),
        row("train", CONV, 5e-4, 160.0),
        row("train", "ReLU()", 3e-6, 60.0),
        row("eval", depth, 5e-6, 50.0),
        row("eval", norm, 2e-4, 160.0),
        row("eval", "ReLU()", 5e-6, 60.0),
    ]
    (dataset,) = import_nicolai2025(written(tmp_path, rows))
    unusable = {(m.campaign, m.operation.kind) for m in dataset.measurements if not m.usable}
    assert unusable == {("train/0", "stochastic_depth"), ("train/0", "batch_norm")}


def test_a_campaign_that_reads_less_power_than_another_loses_its_power(tmp_path):
    modules = [CONV.replace("Conv2d(8, 8", f"Conv2d(8, {n}") for n in (8, 16, 24, 32)]
    rows = [row("good", module, 1e-3, 160.0) for module in modules]
    rows += [row("low", module, 1e-3, 110.0) for module in modules]
    # Energy over another duration is computed again: 160 W x 10 s / 9000 iterations instead of 160 W x 1 ms.
    rows[0] |= {"iterations": 9000, "measured_for_s": 10.0, "energy_j": 160.0 * 10 / 9000}
    (dataset,) = import_nicolai2025(written(tmp_path, rows))
    assert {(m.campaign, m.power_usable) for m in dataset.measurements} == {("good/0", True), ("low/0", False)}
    assert all(m.usable for m in dataset.measurements)
    again = [m for m in dataset.measurements if "recomputed" in m.remark]
    assert [m.energy_j for m in again] == [pytest.approx(0.16)]


def test_wrong_lines_and_files_are_refused(tmp_path):
    for wrong, says in (
        (row("a", CONV, 1e-3, 160.0, energy_j=0.2), "line 3: energy"),
        (row("a", "Conv2e(3)", 1e-3, 160.0), "line 3: unknown torch module"),
    ):
        with pytest.raises(DatasetError, match=says):
            import_nicolai2025(written(tmp_path, [row("a", CONV, 1e-3, 160.0), wrong]))
    (tmp_path / "operations.csv").write_text("gpu,time_s\n")
    with pytest.raises(DatasetError, match="columns are missing"):
        import_nicolai2025(tmp_path)
    with pytest.raises(DatasetError, match="cannot be read"):
        import_nicolai2025(tmp_path / "none")


# Printed torch modules as operations

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


OF_ROWS = [nn.Linear(16, 3), nn.LayerNorm((16,)), nn.LayerNorm([5, 16])]


@pytest.mark.parametrize(
    ("module", "shape"), [*((each, IMAGE) for each in MODULES), *((each, (4, 5, 16)) for each in OF_ROWS)], ids=repr
)
def test_shape_is_that_of_the_module(module, shape):
    operation = operation_from_repr(repr(module), shape)
    assert operation.output_shape == tuple(module.eval()(torch.zeros(shape)).shape)
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


def test_the_real_export(nicolai2025):
    a30, rtx = import_nicolai2025(nicolai2025)
    assert (len(a30.measurements), len(rtx.measurements)) == (11069, 1761)
    assert len(a30.networks) == 48
    # The data README names these two as not credible, and no other.
    low = {m.campaign.split("/")[0] for m in rtx.measurements if not m.power_usable}
    assert low == {"finalbench_all_operations_RTX2080TI", "operations_RTX2080TI"}
    assert all(m.power_usable for m in a30.measurements)
    # February's campaigns ran in eval mode; November's batch norm did not.
    february = [m for m in a30.measurements if "_train/" in m.campaign]
    assert all(m.usable for m in february)
    assert not any(
        m.usable for m in a30.measurements if m.operation.kind == "batch_norm" and "finalbench" in m.campaign
    )
