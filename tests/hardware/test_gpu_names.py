"""Names of GPUs: how they may be written, and what is said of those that mean none or several."""

import pytest

from joulecast.errors import UnknownNameError
from joulecast.hardware import find_gpu, gpu_name_notes


def test_names_do_not_mind_case_and_spaces():
    assert find_gpu("rtx 2080-TI") is find_gpu("NVIDIA GeForce RTX 2080 Ti")


def test_several_gpus_are_referred_to_the_commands_that_take_them():
    with pytest.raises(UnknownNameError, match=r"about one GPU(.|\n)*best-generation"):
        find_gpu("8x H100")


def test_unknown_gpu_suggests_close_names():
    with pytest.raises(UnknownNameError, match="did you mean A30"):
        find_gpu("A3")


@pytest.mark.parametrize("name", ["cpu", "CPU x86_64", "CPU Intel(R) Xeon(R) Platinum 8480+"])
def test_a_cpu_is_no_gpu_and_the_error_says_what_can_be_done(name):
    with pytest.raises(UnknownNameError, match="only GPUs can be used here") as caught:
        find_gpu(name)
    assert repr(name) in str(caught.value)
    assert "joulecast predict MODEL SHAPE --gpu cpu" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "versions"),
    [("A100", 4), ("A100 80GB", 2), ("A100-SXM4", 2), ("v100", 4), ("GH200", 2), ("RTX PRO 6000", 2)],
)
def test_a_name_of_several_lists_them(name, versions):
    with pytest.raises(UnknownNameError, match="several GPUs have this name") as caught:
        find_gpu(name)
    assert len(caught.value.allowed.split(", ")) == versions


def test_a_family_with_a_usual_board_means_that_board():
    assert find_gpu("h100") is find_gpu("NVIDIA H100 80GB HBM3")
    (note,) = gpu_name_notes(" H100")
    assert note == "H100 was taken for H100 SXM, the usual board; the others are called H100 PCIe and H100 NVL"
    assert gpu_name_notes("H100 SXM") == gpu_name_notes(None) == gpu_name_notes(find_gpu("H100")) == ()


def test_words_that_only_one_has_are_enough():
    assert find_gpu("PRO 6000 Server") is find_gpu("RTX PRO 6000 Server")
