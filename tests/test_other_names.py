"""The same data sheet under another name gives bit-equal answers: code asks for figures, never for a GPU's name.

The laws `name` and `name and networks` of test_laws.py say so of operations and networks; here are choices and files.
"""

from dataclasses import replace
from functools import cache

import pytest

import joulecast
from joulecast import Operation
from joulecast.errors import InputError
from joulecast.hardware import find_gpu, gpus
from joulecast.hardware.description import gpu_toml
from joulecast.remote.wire import gpu_name

NETWORK = [(Operation("linear", [(512, 1024)], {"out_features": 4096}), 2)]
CAPPED = replace(find_gpu("A30"), power_limit_w=140.0, power_range_w=None)


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


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_best_of_all(mode, renamed):
    """A choice among all GPUs at all clocks: names differ, and nothing else does."""

    def rows(boards):
        found = joulecast.best("resnet18", (8, 3, 224, 224), gpus=boards, mode=mode, precision=["default", "bf16"])
        return sorted((row.time_s, row.energy_j, row.clock_mhz, row.precision, row.measured) for row in found)

    assert rows([renamed(gpu) for gpu in gpus().values()]) == rows(list(gpus().values()))


@pytest.mark.parametrize("name", ["A30", "RTX 2080 Ti"])
def test_a_board_that_was_measured_has_its_predictor_under_any_name(renamed, name):
    found, forest = (joulecast.predict(NETWORK, gpu=renamed(find_gpu(name)), predictor=p) for p in (None, "forest"))
    assert found.predictor == joulecast.predict(NETWORK, gpu=name).predictor
    assert found.gpu.startswith("Board")
    assert forest.predictor == f"{find_gpu(name).slug}/forest-inference"


def test_a_board_with_other_figures_has_no_predictor_of_another():
    """A user's file with the name of a GPU but figures of its own, such as a cap, is another board."""
    assert joulecast.predict(NETWORK, gpu=CAPPED).predictor == "any-gpu/forest"
    # A service is not asked about figures that it does not know.
    assert gpu_name(find_gpu("A30")) == "NVIDIA A30"
    with pytest.raises(InputError, match="predicts the GPUs of its own catalogue only") as caught:
        gpu_name(CAPPED)
    assert "NVIDIA A30 with figures of its own" in str(caught.value)
