"""Operations as parts of networks: channels-last tensors, depthwise convolutions and first layers in training."""

from dataclasses import replace

import pytest
import torch
from made_predictions import predictions

import joulecast
from joulecast.errors import InputError
from joulecast.extraction.models.torchvision_models import build, import_torchvision
from joulecast.hardware import find_gpu
from joulecast.operations.fusion import fusion_of
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation
from joulecast.predictors.networks.parts import as_compiled, gradient_fractions, part_factors
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.roofline import reached_bandwidth
from joulecast.zoo import find_predictor

SHAPE = (2, 3, 64, 64)


def _slowdowns(network: Network, gpu: str) -> dict[bool, set[float]]:
    """Whether an operation is a depthwise convolution -> the slowdowns of such operations."""
    found: dict[bool, set[float]] = {True: set(), False: set()}
    listed = replace(network, input_shape=None)  # the same operations as a list, in which no layer is the first
    for entry, slowdown in zip(network, part_factors(listed, find_gpu(gpu)).tolist(), strict=True):
        found[entry.operation.is_depthwise].add(slowdown)
    return found


def _convnext() -> torch.nn.Module:
    convnext = import_torchvision().models.convnext
    return convnext.ConvNeXt([convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 2)])


@pytest.mark.parametrize("make", [_convnext, lambda: build("mobilenet_v3_small")], ids=["convnext", "mobilenet"])
def test_convolutions_count_as_channels_last_where_pytorch_keeps_their_tensors_so(make):
    model, orders = make().to_empty(device="cpu"), []

    def look(module: torch.nn.Conv2d, inputs: tuple[torch.Tensor]) -> None:
        if module.groups == module.in_channels > 1:
            orders.append(inputs[0].is_contiguous(memory_format=torch.channels_last) and not inputs[0].is_contiguous())

    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_pre_hook(look)
    with torch.no_grad():
        model.eval()(torch.zeros(SHAPE))
    in_pytorch = set(orders)
    network = joulecast.extract(model, SHAPE, mode="training", precision="fp32")
    slowdowns = _slowdowns(network, "A30")[True]
    assert {slowdown > 1 for slowdown in slowdowns} == in_pytorch


@pytest.mark.parametrize(
    ("gpu", "mode", "precision", "slowdown"),
    [
        ("A30", "training", "fp32", 3.3),
        ("A30", "training", "default", 1.8),
        ("T4", "training", "default", 3.3),  # This GPU has no TF32.
        ("A30", "training", "bf16", 1.0),
        ("A30", "inference", "fp32", 1.0),
        ("MI210", "training", "fp32", 1.0),
    ],
)
def test_only_depthwise_convolutions_in_training_are_slower(gpu, mode, precision, slowdown):
    network = joulecast.extract("convnext_tiny", (4, 3, 224, 224), mode=mode, precision=precision)
    assert _slowdowns(network, gpu) == {True: {slowdown}, False: {1.0}}


def test_a_module_that_was_converted_gives_a_network_with_channels_last():
    module = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.Conv2d(16, 8, 1))
    assert not joulecast.extract(module, (2, 8, 16, 16)).channels_last
    network = joulecast.extract(module.to(memory_format=torch.channels_last), (2, 8, 16, 16))
    assert network.channels_last
    assert network.replace(mode="training", precision="bf16").channels_last
    assert Network.from_dict(network.to_dict()) == network
    with pytest.raises(InputError, match=r"(?s)given: +'yes'.*true or false"):
        Network.from_dict({**network.to_dict(), "channels_last": "yes"})


@pytest.mark.parametrize(("mode", "gpu"), [("inference", "A100 PCIe 40GB"), ("training", "T4")])
def test_with_channels_last_a_convolution_that_is_bound_by_memory_takes_a_third_of_the_time(mode, gpu):
    """It reads its input and writes its output once. Transposing both moves each twice more."""
    attributes = {"out_channels": 64, "kernel_size": 1, "bias": False}
    convolution = Operation("conv2d", [(64, 64, 112, 112)], attributes, precision="fp16", mode=mode)
    others = [
        convolution.replace(precision="fp32"),
        Operation("relu", [(64, 32, 112, 112)], precision="fp16", mode=mode),
    ]
    network = Network.of([(operation, 1) for operation in (convolution, *others)])
    converted = replace(network, channels_last=True)
    # The filters, and FLOPs that overlap with the traffic, are a few percent.
    assert part_factors(converted, find_gpu(gpu)).tolist() == pytest.approx([1 / 3, 1.0, 1.0], rel=0.1)
    # The P100 has no tensor cores.
    for each, board in ((network, gpu), (converted, "P100 PCIe"), (converted, "MI210")):
        assert part_factors(each, find_gpu(board)).tolist() == [1.0, 1.0, 1.0]


def test_with_channels_last_a_window_of_nine_pixels_spares_what_physics_counts():
    """Four passes over its images become one; the work of tensor cores and the filters stay."""
    attributes = {"out_channels": 32, "kernel_size": 3, "padding": 1, "bias": False}
    convolution = Operation("conv2d", [(64, 32, 112, 112)], attributes, precision="fp16")
    a100 = find_gpu("A100 PCIe 40GB")
    least = LeastTimes.of([convolution], a100, float(a100.boost_clock_mhz))
    images_s = 2 * 2 * 64 * 32 * 112 * 112 / reached_bandwidth(a100)
    filters_s = 2 * 9 * 32 * 32 / reached_bandwidth(a100)
    assert least.memory_s[0] == pytest.approx(4 * images_s + filters_s)
    without_s = (least.compute_s**3 + least.cache_s**3 + (images_s + filters_s) ** 3) ** (1 / 3)
    converted = replace(Network.of([(convolution, 1)]), channels_last=True)
    assert part_factors(converted, a100).tolist() == pytest.approx([without_s[0] / least.time_s[0]])


def test_predictions_follow_the_order_one_by_one_and_many_together():
    """Transposes pass over images, the rest of a convolution reads filters: larger images spare more of its time."""
    spared = []
    for shape in ((8, 3, 64, 64), (32, 3, 224, 224)):
        first = joulecast.extract("resnet18", shape, precision="fp16")
        last = replace(first, channels_last=True)
        alone = [joulecast.predict(network, gpu="T4", execution="graph") for network in (first, last)]
        together = joulecast.predict_many([first, last], "T4", execution="graph")
        assert together.time_s.tolist() == pytest.approx([each.time_s for each in alone])
        spared.append(1 - alone[1].time_s / alone[0].time_s)
    assert 0 < spared[0] < 0.5 * spared[1]


# The first layer of a model in training has no gradient of its input.


def test_everything_is_paid_in_inference_in_lists_and_after_an_embedding():
    training = joulecast.extract("resnet18", SHAPE, mode="training")
    assert (gradient_fractions(joulecast.extract("resnet18", SHAPE)) == 1).all()
    assert (gradient_fractions(Network.of([(e.operation, e.count) for e in training])) == 1).all()
    assert (gradient_fractions(joulecast.extract("bert_base", (2, 16), mode="training")) == 1).all()


def test_a_first_layer_that_runs_again_is_cut_once():
    layer = Operation("linear", [(8, 64)], {"out_features": 64, "bias": True}, mode="training")
    relu = Operation("relu", [(8, 64)], mode="training")
    network = replace(Network.of([(relu, 1), (layer, 4)]), input_shape=(8, 64))
    assert gradient_fractions(network).tolist() == pytest.approx([1, 1 - 1 / 12])


@pytest.mark.parametrize("gpu", ["A30", "T4"])
def test_device_time_and_energy_of_the_first_layer_are_cut_at_every_clock(gpu):
    model = joulecast.extract("resnet18", (32, 3, 224, 224), mode="training", precision="fp32")
    whole = replace(model, input_shape=None)
    predictor = find_predictor(gpu, "training")
    for clock in (None, 600.0):
        cut, all_of_it = (predictor.predict(network, clock, power_limit_w=None) for network in (model, whole))
        assert cut.time_s < all_of_it.time_s
        assert cut.energy_j < all_of_it.energy_j
        # Under the cap, the clock of the network changes a little as well.
        first, same = (p.operations[0].device_time_s for p in (cut, all_of_it))
        assert first == pytest.approx(2 / 3 * same, rel=0.02)
        assert cut.operations[3].device_time_s == pytest.approx(all_of_it.operations[3].device_time_s, rel=0.02)


def test_what_is_fused_launches_and_moves_less():
    """A launch of 2 us and what is left of the bytes; what is shorter than that is all launch."""
    network = joulecast.extract("resnet18", SHAPE)
    fusion, count = fusion_of(network), len(network)
    for seconds in (1e-3, 1e-6):
        alone = predictions([seconds] * count, [1e-5] * count, [0.1] * count, operations=network.operations)
        found, launch_s = as_compiled(network, alone, find_gpu("A30")), min(2e-6, seconds)
        expected = launch_s * fusion.kernels + (seconds - launch_s) * fusion.traffic
        assert found.device_time_s == pytest.approx(expected)
        assert found.dynamic_energy_j == pytest.approx(0.1 * expected / seconds)
        assert found.host_time_s == pytest.approx(8e-6 * fusion.kernels)
    assert 0 < fusion.kernels.mean() < 1
