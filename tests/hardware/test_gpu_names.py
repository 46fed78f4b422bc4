"""Names of GPUs, machines of clouds and hosts: how they may be written, and what is said of those that mean none."""

import json
import tomllib
from importlib.resources import files

import pytest

import joulecast
from joulecast.errors import InputError, UnknownNameError
from joulecast.generation.parallel import find_gpus
from joulecast.hardware import find_gpu, gpu_name_notes
from joulecast.hardware.catalogue import find_machine
from joulecast.hardware.host import REFERENCE, USUAL, find_host, hosts, processor, write_profile


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("rtx 2080-TI", "NVIDIA GeForce RTX 2080 Ti"),  # Case and spaces do not matter.
        ("h100", "NVIDIA H100 80GB HBM3"),  # A family with a usual board means that board.
        ("PRO 6000 Server", "RTX PRO 6000 Server"),  # Words that only one has are enough.
    ],
)
def test_names_as_people_write_them(written, name):
    assert find_gpu(written) is find_gpu(name)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("8x H100", r"about one GPU(.|\n)*best-generation"),
        ("A3", "did you mean A30"),
        ("p5.49xlarge", "unknown GPU"),
        *(
            (cpu, r"(?s)only GPUs can be used here.*(?i:'cpu).*joulecast predict MODEL SHAPE --gpu cpu")
            for cpu in ("cpu", "CPU x86_64", "CPU Intel(R) Xeon(R) Platinum 8480+")
        ),
    ],
)
def test_names_of_no_gpu_are_refused_with_what_can_be_done(written, says):
    with pytest.raises(UnknownNameError, match=says):
        find_gpu(written)


@pytest.mark.parametrize(
    ("name", "versions"),
    [("A100", 4), ("A100 80GB", 2), ("A100-SXM4", 2), ("v100", 4), ("GH200", 2), ("RTX PRO 6000", 2)],
)
def test_a_name_of_several_lists_them(name, versions):
    with pytest.raises(UnknownNameError, match="several GPUs have this name") as caught:
        find_gpu(name)
    assert len(caught.value.allowed.split(", ")) == versions


def test_a_family_that_means_its_usual_board_is_noted():
    (note,) = gpu_name_notes(" H100")
    assert note == "H100 was taken for H100 SXM, the usual board; the others are called H100 PCIe and H100 NVL"
    assert gpu_name_notes("H100 SXM") == gpu_name_notes(None) == gpu_name_notes(find_gpu("H100")) == ()


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
    assert find_machine("p5.49xlarge") is find_machine(8) is None


def test_every_machine_has_a_gpu_of_the_catalogue_and_no_name_comes_twice() -> None:
    rows = tomllib.loads(files("joulecast.hardware").joinpath("clouds.toml").read_text())["machine"]
    names = [name.lower() for row in rows for name in row["boards"]]
    assert len(names) == len(set(names)) > 50
    for row in rows:
        assert find_gpu(row["gpu"]).aliases[0] == row["gpu"]


def test_the_answer_says_that_it_is_for_one_board() -> None:
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "p5.48xlarge")
    assert "this is for one H100 SXM, one of the 8 boards of AWS's p5.48xlarge" in prediction.notes
    assert prediction.time_s == joulecast.predict("resnet18", (8, 3, 224, 224), "H100 SXM").time_s


# Hosts by name, factor or profile; anything else is refused.


@pytest.mark.parametrize(
    ("gpu", "factor"), [("A30", 1.0), ("A100 SXM4 80GB", 1.0), ("MI250X", 1.0), ("H100 SXM", 0.6), ("L4", 0.6)]
)
def test_the_usual_host_of_gpus_from_2022_on_is_faster(gpu, factor):
    assert find_host(None) is find_host("usual") is USUAL
    assert REFERENCE.factor == 1.0
    assert all(host.source for host in hosts().values())
    for wanted, own in ((0.5, 0.5), ("0.5", 0.5), (2, 2.0), ("h100-server", 0.6)):
        assert find_host(wanted).factor == own
    assert USUAL.of(find_gpu(gpu)).factor == factor
    assert find_host(0.7).of(find_gpu(gpu)).factor == 0.7


def test_a_profile_comes_back(tmp_path):
    path = tmp_path / "mine.json"
    write_profile(path, 0.7, {"call_s": 7e-6})
    found = find_host(path)
    assert (found.name, found.factor, found.note) == ("mine", 0.7, "")
    assert find_host(str(path)) == found
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "processor": "another one"}))
    assert "comes from another machine: another one" in find_host(path).note
    assert processor() in find_host(path).note


PROFILE = {"kind": "joulecast host", "format": 1, "processor": "x", "factor": 1.0}
DAMAGE = [{"format": 9}, {"kind": "x"}, *({"factor": factor} for factor in ("a", None, -1, 0, 1e9))]


def test_damaged_profiles_are_refused(tmp_path):
    path = tmp_path / "host.json"
    path.write_text(json.dumps(PROFILE))
    assert find_host(path).factor == 1.0
    for content in ("", "{}", "[1]", "nonsense", *(json.dumps({**PROFILE, **damage}) for damage in DAMAGE)):
        path.write_text(content)
        with pytest.raises(InputError):
            find_host(path)


@pytest.mark.parametrize("wanted", [0, -1, float("nan"), float("inf"), True, 1e6, "nosuch.json", [], {}], ids=str)
def test_impossible_hosts_are_refused(wanted):
    with pytest.raises(InputError):
        find_host(wanted)
    with pytest.raises(UnknownNameError, match="did you mean h100-server"):
        find_host("h100-serve")
