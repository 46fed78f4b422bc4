"""p-norms against arithmetic by hand."""

import numpy as np
import pytest

from joulecast.predictors.physics.norms import cubed, overlapped, smooth_max


def test_host_and_device_are_a_norm_of_fourth_powers():
    assert smooth_max(1.0, 1.0) == pytest.approx(2**0.25)  # 1.189
    assert smooth_max(3.0, 4.0) == pytest.approx(337**0.25)  # 81 + 256
    assert smooth_max(0.0, 5.0) == pytest.approx(5.0)
    assert smooth_max(np.array([1.0, 2.0]), 2.0) == pytest.approx([17**0.25, 32**0.25])


def test_parts_of_a_kernel_are_a_norm_of_cubes():
    assert overlapped(3.0, 4.0, 5.0) == pytest.approx(6.0)  # 27 + 64 + 125 = 216
    assert overlapped(np.array([1.0, 0.0]), np.array([1.0, 7.0])) == pytest.approx([2 ** (1 / 3), 7.0])
    assert overlapped(2.5) == pytest.approx(2.5)
    assert cubed(np.array([-2.0, 3.0])).tolist() == [-8.0, 27.0]
