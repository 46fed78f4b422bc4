"""The public functions on the shipped zoo."""

import json

import numpy as np
import pytest
from torch import nn

import joulecast
from joulecast import Operation
from joulecast.errors import InputError, UncoveredError, UnknownNameError, ZooError
from joulecast.units import si

CONV = Operation("conv2d", [(32, 64, 56, 56)], {"out_channels": 64, "kernel_size": 3, "padding": 1}, precision="tf32")
SENT = Operation("all_reduce", [(512, 512)], {"gpus": 2})


def test_resnet50_on_an_a30_is_what_was_measured():
    # Measured (nicolai2025, networks.csv): 21.4 ms, 164.6 W, 3.52 J.
    prediction = joulecast.predict("resnet50", (32, 3, 224, 224), "A30")
    assert prediction.time_s == pytest.approx(21.36e-3, rel=0.1)
    assert prediction.power_w == pytest.approx(164.6, rel=0.05)
    assert prediction.energy_j == pytest.approx(3.515, rel=0.1)
    low, high = prediction.interval(0.9).energy_j
    assert low < 3.515 < high
    assert not prediction.uncovered
    assert {"measured", "modelled"} == {cost.source for cost in prediction.operations}
    assert json.loads(json.dumps(prediction.to_dict()))["energy_j"] == prediction.energy_j
    assert prediction.to_frame()["energy_j"].sum() == pytest.approx(prediction.energy_j)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_step_of_an_optimizer_reads_and_writes_its_parameters(optimizer):
    """A step is bound by memory. Each of PyTorch's kernels over all parameters (foreach) reads and writes its tensors.

    SGD: one addition (2 reads, 1 write). AdamW: mul 2, lerp 3, mul 2, addcmul 3, sqrt 2, div 2, add 2, addcdiv 4.
    """
    about = ("resnet50", (32, 3, 224, 224))
    without = joulecast.predict(*about, "A30", mode="training")
    prediction = joulecast.predict(*about, "A30", mode="training", optimizer=optimizer)
    (step,) = (cost for cost in prediction.operations if cost.operation.kind == f"{optimizer}_step")
    passes = {"sgd": 3, "adamw": 20}[optimizer]
    least_s = passes * 4 * 25_557_032 / 933e9  # parameters of ResNet-50; bandwidth of the A30
    assert least_s < step.device_time_s < 2 * least_s
    assert prediction.device_time_s == pytest.approx(without.device_time_s + step.device_time_s)
    assert prediction.energy_j > without.energy_j
    for choose in (joulecast.best, joulecast.sweep):
        (row,) = choose(*about, gpus="A30", clocks=1440, mode="training", optimizer=optimizer)
        assert row.energy_j == pytest.approx(prediction.energy_j)


def test_energy_is_lowest_at_a_middle_clock():
    # Published for the A30: energy is lowest at 900 MHz, the energy-delay product at 1200 MHz.
    clocks = (210, 300, 600, 900, 1200, 1440)
    predictions = [joulecast.predict("resnet50", (32, 3, 224, 224), "A30", clock) for clock in clocks]
    assert min(predictions, key=lambda p: p.energy_j).clock_mhz == 900
    assert min(predictions, key=lambda p: p.edp_js).clock_mhz == 1200
    assert [p.time_s for p in predictions] == sorted((p.time_s for p in predictions), reverse=True)
    assert "scaled by physics" in predictions[0].notes[0]
    # The errors behind the interval were made at the default clock; the further from it, the wider it is.
    widths = [np.divide(*reversed(p.interval().energy_j)) for p in predictions]
    assert widths == sorted(widths, reverse=True)
    assert "other clocks" in predictions[0].interval_basis
    assert "other clocks" not in predictions[-1].interval_basis


@pytest.mark.parametrize("gpu", ["A30", "A100-PCIE-40GB"])
def test_a_lower_cap_takes_longer_at_a_lower_clock(gpu):
    caps = (None, 120.0, 100.0)
    found = [joulecast.predict("resnet50", (32, 3, 224, 224), gpu, power_limit_w=cap) for cap in caps]
    assert [p.time_s for p in found] == sorted(p.time_s for p in found)
    assert [p.held_clock_mhz for p in found] == sorted((p.held_clock_mhz for p in found), reverse=True)
    for cap, prediction in zip(caps[1:], found[1:], strict=True):
        assert prediction.held_clock_mhz < prediction.clock_mhz
        assert prediction.power_w <= 1.001 * cap == 1.001 * prediction.power_limit_w
    default = joulecast.predict(
        "resnet50", (32, 3, 224, 224), gpu, found[0].clock_mhz, power_limit_w=found[0].power_limit_w
    )
    assert default.to_dict() == found[0].to_dict()


def test_what_is_not_covered_is_listed_and_strict_raises():
    network = [(CONV, 20), (SENT, 2)]
    prediction = joulecast.predict(network, None, "A30")
    assert [uncovered.operation for uncovered in prediction.uncovered] == [SENT]
    assert prediction.operations[1].energy_j is None
    flops = [20 * CONV.flops, 2 * SENT.flops]
    moved = [n * (op.bytes_read + op.bytes_written) for op, n in network]
    assert prediction.uncovered_share == pytest.approx(max(flops[1] / sum(flops), moved[1] / sum(moved)))
    low, high = prediction.interval().energy_j
    assert high / prediction.energy_j > prediction.energy_j / low
    assert "missing" in prediction.interval_basis
    assert prediction.device_time_s == joulecast.predict([(CONV, 20)], None, "A30").device_time_s
    with pytest.raises(UncoveredError, match="1 operations of network are not covered"):
        joulecast.predict(network, None, "A30", strict=True)
    with pytest.raises(InputError, match="covers none"):
        joulecast.predict([(SENT, 2)], None, "A30")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        (("resnet18", (8, 3, 64, 64), "A300"), {}, UnknownNameError, "did you mean A30"),
        (("resnet18", (8, 3, 64, 64), "A30", 5000), {}, InputError, "210 to 1440"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"precision": "fp31"}, UnknownNameError, "did you mean fp32"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"mode": "trianing"}, UnknownNameError, "training"),
        (("resnet18", (8, 3, 64, 64), "2080 Ti"), {"precision": "bf16"}, InputError, "does not support bf16"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"predictor": "tree"}, UnknownNameError, "predictor"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"optimizer": "adamw"}, InputError, "steps in training"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"optimizer": "adma"}, UnknownNameError, "did you mean adam"),
        (([(CONV, 1)], None, "A30"), {"operators": {"a.b": "gelu"}}, InputError, "list of operations is complete"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"composition": "product"}, InputError, "overlap, sum"),
        (("resnet18", (8, 3, 64, 64), "A30"), {"predictor": 3}, InputError, "not the name of a predictor"),
        (("resnet18", (8, 3, 64, 64), ["A30"]), {}, InputError, "not the name of a GPU"),
    ],
)
def test_bad_input(arguments, options, error, says):
    with pytest.raises(error, match=says):
        joulecast.predict(*arguments, **options)


def test_a_gpu_without_a_predictor_is_reported(monkeypatch, tmp_path):
    (tmp_path / "zoo").mkdir()
    for room in ("catalogue", "store"):
        monkeypatch.setattr(f"joulecast.zoo.{room}.shipped", lambda name: tmp_path / name)
    with pytest.raises(ZooError, match="no predictor for inference"):
        joulecast.predict([(CONV, 1)], None, "A30")


def test_the_bound_of_an_operation_is_stated():
    """On the A30 (10 TFLOP/s fp32, 933 GB/s): 2 x 4096^3 FLOPs take 13 ms, 2 x 64 MiB 0.14 ms, a call some 10 us."""
    product = joulecast.Operation("linear", [(4096, 4096)], {"out_features": 4096})
    copy, tiny = joulecast.Operation("relu", [(4096, 4096)]), joulecast.Operation("relu", [(8, 8)])
    prediction = joulecast.predict([(product, 1), (copy, 1), (tiny, 1)], None, "A30")
    assert [cost.bound_by for cost in prediction.operations] == ["compute", "memory", "launch"]


def test_modules_lists_and_files_and_what_is_listed_needs_no_shape_and_keeps_its_own(tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU())
    assert joulecast.predict(module, (32, 3, 56, 56), "A30").energy_j > 0
    network = joulecast.extract("resnet18", (2, 3, 64, 64))
    saved = tmp_path / "resnet18.json"
    saved.write_text(json.dumps(network.to_dict()))
    wanted = joulecast.predict("resnet18", (2, 3, 64, 64), "A30").energy_j
    for model in (network, saved):
        assert joulecast.predict(model, gpu="A30").energy_j == wanted
        assert joulecast.predict(model, (2, 3, 64, 64), "A30").energy_j == wanted
        with pytest.raises(InputError, match=r"has its input shape already(.|\n)*2 x 3 x 64 x 64"):
            joulecast.predict(model, (4, 3, 64, 64), "A30")
    by_name = joulecast.extract("bert_base", {"input_ids": (2, 8)})
    assert joulecast.predict(by_name, (2, 8), "A30").energy_j == joulecast.predict(by_name, gpu="A30").energy_j
    with pytest.raises(InputError, match="needs a GPU"):
        joulecast.predict(network)


@pytest.mark.parametrize("given", [CONV, "relu", [CONV.to_dict()], [(CONV, 1)], None], ids=str)
def test_operations_are_operations(given):
    with pytest.raises(InputError, match=r"list of joulecast.Operation(.|\n)*from_dict"):
        joulecast.predict_operations(given, "A30")
    with pytest.raises(InputError, match=r"list of joulecast.Operation"):
        joulecast.explain([given], "A30")


def test_what_is_printed_is_short():
    job = ("resnet18", (8, 3, 224, 224))
    prediction = joulecast.predict(*job, "A30")
    low, high = prediction.interval(0.9).energy_j
    assert str(prediction).startswith("resnet18 8 x 3 x 224 x 224, inference, on NVIDIA A30 at 1440 MHz: ")
    assert f"{si(prediction.energy_j, 'J')} ({si(low, 'J')} to {si(high, 'J')})" in str(prediction)
    network = joulecast.extract(*job)
    assert str(network) == f"resnet18 8 x 3 x 224 x 224, inference: {len(network)} operations, 68 calls, 29.1 GFLOP"
    first, *_ = choices = joulecast.best(*job, gpus=["A30", "T4"])
    assert str(choices).splitlines()[0] == str(first)
    assert str(first).startswith(f"{first.alias} at {first.clock_mhz:g} MHz, default, batch 8, inference")
    sweep = joulecast.sweep(*job, gpus="A30", clocks=[900, 1440])
    assert str(sweep) == f"resnet18 8 x 3 x 224 x 224, inference: 2 choices; least energy: {sweep.best()}"
    # Nor does a Python prompt show the hundreds of operations.
    assert all(len(repr(value)) < 700 for value in (prediction, network, sweep))


@pytest.mark.parametrize(("gpu", "batch", "fits"), [("H200", 32, True), ("T4", 512, False), ("H200", 512, True)])
def test_a_job_that_does_not_fit_into_memory_is_noted(gpu, batch, fits):
    job = ("resnet50", (batch, 3, 224, 224), gpu)
    (note,) = [n for n in joulecast.predict(*job, mode="training").notes if "fit" in n] or [""]
    assert (not note) == fits
    if not fits:
        (left_out,) = joulecast.best(*job[:2], gpus=[gpu, "H200"], mode="training").left_out
        assert note == f"it would not fit: {left_out.reason}"


def test_numbers_of_numpy_are_accepted():
    shape = tuple(np.array([8, 3, 64, 64]))
    wanted = joulecast.predict("resnet18", (8, 3, 64, 64), "A30", 900, power_limit_w=150)
    assert joulecast.predict("resnet18", shape, "A30", np.int64(900), power_limit_w=np.int32(150)) == wanted
    relu, counted = Operation("relu", [shape]), np.int64(3)
    assert joulecast.predict([(relu, counted)], None, "A30") == joulecast.predict([(relu, 3)], None, "A30")
    linear = Operation("linear", [(4, 8)], {"out_features": np.int64(2)})
    assert json.loads(json.dumps(linear.to_dict()))["attributes"]["out_features"] == 2
    asked = {"gpus": "A30", "clocks": np.array([900, 1200]), "batch_sizes": np.array([4, 8])}
    plain = {"gpus": "A30", "clocks": [900, 1200], "batch_sizes": [4, 8]}
    assert joulecast.best("resnet18", shape, **asked) == joulecast.best("resnet18", (8, 3, 64, 64), **plain)


def test_a_cap_that_the_lowest_clock_exceeds_is_noted():
    low, high = (joulecast.predict("resnet50", (64, 3, 224, 224), "P4", power_limit_w=watts) for watts in (24, 60))
    assert low.held_clock_mhz == pytest.approx(455, rel=0.01)
    assert [any("lowest clock" in note for note in each.notes) for each in (low, high)] == [True, False]


def test_tables_tell_operations_apart():
    frames = [
        joulecast.extract("resnet50", (32, 3, 224, 224)).to_frame(),
        joulecast.predict("resnet50", (32, 3, 224, 224), "A30").to_frame(),
        joulecast.predict_operations(joulecast.extract("resnet50", (32, 3, 224, 224)).operations, "A30").to_frame(),
    ]
    for frame in frames:
        assert not frame[["kind", "input_shapes", "attributes", "precision", "mode"]].duplicated().any()
