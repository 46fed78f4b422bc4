"""The same data sheet under another name gives bit-equal answers: code asks for figures, never for a GPU's name."""

from dataclasses import replace
from functools import cache

import pytest

import joulecast
from joulecast import Operation
from joulecast.errors import InputError, JoulecastError
from joulecast.hardware import find_gpu, gpus
from joulecast.hardware.description import gpu_toml
from joulecast.remote.wire import gpu_name

# One board of each generation. `test_the_best_of_all` and benchmarks/laws.py have all boards.
OF_EACH_GENERATION = {gpu.compute_capability: gpu for gpu in gpus().values()}.values()
EACH = pytest.mark.parametrize("gpu", OF_EACH_GENERATION, ids=lambda gpu: gpu.slug)
TRAINABLE = ("fp32", "tf32", "fp16", "bf16")


@pytest.fixture(scope="module")
def renamed(tmp_path_factory):
    """Writes a GPU as a user would describe it in a file of his own: its figures, a name, no aliases and no sources."""
    folder = tmp_path_factory.mktemp("boards")

    @cache
    def write(gpu):
        path = folder / f"{gpu.slug}.toml"
        path.write_text(gpu_toml(replace(gpu, name=f"Board {len(list(folder.iterdir()))}", aliases=(), sources=())))
        return path

    return write


def network(precision, mode):
    """An operation of each of the families that physics treats in its own way."""
    some = [
        ("conv2d", [(8, 64, 56, 56)], {"out_channels": 128, "kernel_size": (3, 3), "padding": (1, 1)}),
        ("conv2d", [(8, 96, 28, 28)], {"out_channels": 96, "kernel_size": (3, 3), "padding": (1, 1), "groups": 96}),
        ("conv_transpose2d", [(2, 64, 28, 28)], {"out_channels": 32, "kernel_size": (2, 2), "stride": (2, 2)}),
        ("batch_norm", [(8, 128, 56, 56)], {}),
        ("relu", [(8, 128, 56, 56)], {}),
        ("linear", [(512, 1024)], {"out_features": 4096}),
        ("matmul", [(96, 128, 64), (96, 64, 128)], {}),
        ("attention", [(8, 16, 512, 64)] * 3, {"causal": True}),
        ("softmax", [(96, 128, 128)], {}),
        ("layer_norm", [(4, 512, 1024)], {}),
        ("add", [(4, 512, 1024), (4, 512, 1024)], {}),
    ]
    return [(Operation(kind, shapes, options, precision=precision, mode=mode), 2) for kind, shapes, options in some]


def answers(found):
    return found.time_s, found.power_w, found.energy_j, found.interval(0.9)


def quantized(operation, gpu):
    """The answer for an operation below 16 bits, or the kind of error where no kernels of the GPU are known."""
    try:
        return answers(joulecast.predict([(operation, 1)], gpu=gpu))
    except JoulecastError as error:
        return type(error)


@EACH
def test_a_prediction(gpu, renamed):
    other = find_gpu(renamed(gpu))
    assert other.name not in (gpu.name, *gpu.aliases)
    precisions = [each for each in TRAINABLE if each in gpu.peak_flops]
    for mode in ("inference", "training"):
        for precision in precisions:
            listed = network(precision, mode)
            found, again = (joulecast.predict(listed, gpu=each, mode=mode) for each in (gpu, renamed(gpu)))
            assert answers(again) == answers(found), (mode, precision)
            for clock in (gpu.min_clock_mhz, gpu.max_clock_mhz):
                slow, again = (joulecast.predict(listed, gpu=each, clock=clock, mode=mode) for each in (gpu, other))
                assert answers(again) == answers(slow), (mode, precision, clock)
    for precision in set(gpu.peak_flops) - {*TRAINABLE, "fp64", "int8"}:
        linear = Operation("linear", [(512, 1024)], {"out_features": 4096}, precision=precision)
        assert quantized(linear, other) == quantized(linear, gpu), precision


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_best_of_all(mode, renamed):
    """A choice among all GPUs at all clocks: names differ, and nothing else does."""

    def rows(boards):
        found = joulecast.best("resnet18", (8, 3, 224, 224), gpus=boards, mode=mode, precision=["default", "bf16"])
        return sorted((row.time_s, row.energy_j, row.clock_mhz, row.precision, row.measured) for row in found)

    assert rows([renamed(gpu) for gpu in gpus().values()]) == rows(list(gpus().values()))


def test_a_board_that_was_measured_has_its_predictor_under_any_name(renamed):
    for name in ("A30", "RTX 2080 Ti"):
        found = joulecast.predict(network("fp32", "inference"), gpu=renamed(find_gpu(name)))
        assert found.predictor == joulecast.predict(network("fp32", "inference"), gpu=name).predictor
        assert found.gpu.startswith("Board")
        forest = joulecast.predict(network("fp32", "inference"), gpu=renamed(find_gpu(name)), predictor="forest")
        assert forest.predictor == f"{find_gpu(name).slug}/forest-inference"


def test_a_board_with_other_figures_has_no_predictor_of_another(renamed):
    """A user's file with the name of a GPU but figures of its own, such as a cap, is another board."""
    capped = replace(find_gpu("A30"), power_limit_w=140.0, power_range_w=None)
    assert joulecast.predict(network("fp32", "inference"), gpu=capped).predictor == "any-gpu/boosting"


def test_a_service_is_not_asked_about_figures_that_it_does_not_know():
    assert gpu_name(find_gpu("A30")) == "NVIDIA A30"
    with pytest.raises(InputError, match="predicts the GPUs of its own catalogue only") as caught:
        gpu_name(replace(find_gpu("A30"), power_limit_w=140.0))
    assert "NVIDIA A30 with figures of its own" in str(caught.value)
