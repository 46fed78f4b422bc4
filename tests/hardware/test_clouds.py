"""Machines of clouds are names of GPUs."""

import tomllib
from importlib.resources import files

import pytest

import joulecast
from joulecast.errors import UnknownNameError
from joulecast.generation.parallel import find_gpus
from joulecast.hardware import find_gpu
from joulecast.hardware.catalogue import find_machine

ROWS = tomllib.loads(files("joulecast.hardware").joinpath("clouds.toml").read_text())["machine"]


@pytest.mark.parametrize(
    ("name", "count", "gpu"),
    [
        ("p5.48xlarge", 8, "NVIDIA H100 80GB HBM3"),
        ("a2-highgpu-2g", 2, "NVIDIA A100-SXM4-40GB"),
        ("Standard_NC24ads_A100_v4", 1, "NVIDIA A100 80GB PCIe"),
        ("g4dn.XLARGE", 1, "Tesla T4"),
    ],
)
def test_a_machine_is_so_many_boards(name: str, count: int, gpu: str) -> None:
    found, board = find_gpus(name)
    assert (found, board.name) == (count, gpu)
    assert find_gpu(name).name == gpu


def test_every_machine_has_a_gpu_of_the_catalogue_and_no_name_comes_twice() -> None:
    names = [name.lower() for row in ROWS for name in row["boards"]]
    assert len(names) == len(set(names)) > 50
    for row in ROWS:
        assert find_gpu(row["gpu"]).aliases[0] == row["gpu"]


def test_the_answer_says_that_it_is_for_one_board() -> None:
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "p5.48xlarge")
    assert "this is for one H100 SXM, one of the 8 boards of AWS's p5.48xlarge" in prediction.notes
    assert prediction.time_s == joulecast.predict("resnet18", (8, 3, 224, 224), "H100 SXM").time_s


def test_what_no_cloud_has_is_unknown() -> None:
    assert find_machine("p5.49xlarge") is None
    assert find_machine(8) is None
    with pytest.raises(UnknownNameError):
        find_gpu("p5.49xlarge")
