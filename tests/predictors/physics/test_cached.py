"""Results that are cached for networks on GPUs."""

import gc
import weakref

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.cached import _MOST_OF_ONE, cached
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.relative import relative_features

A30, T4 = find_gpu("A30"), find_gpu("T4")


def relus(count):
    return OperationList(Operation("relu", [(size, 8)]) for size in range(1, count + 1))


@pytest.mark.parametrize(("length", "made"), [(3, 2), (_MOST_OF_ONE + 1, 4)], ids=["network", "long list"])
def test_equal_networks_share_a_cached_result_and_long_lists_are_not_cached(length, made):
    calls = []

    @cached
    def counting(operations, gpu):
        calls.append(gpu)
        return len(operations)

    for gpu in (A30, T4, A30, T4):
        assert counting(relus(length), gpu) == length
    assert len(calls) == made


def test_results_that_were_computed_together_are_found():
    @cached
    def never(operations, gpu):
        raise AssertionError("asked again")

    network = relus(3)
    assert not never.knows(network, A30)
    never.put("of both", network, A30)
    assert never.knows(relus(3), A30)
    assert not never.knows(network, T4)
    assert never(relus(3), A30) == "of both"


def test_results_of_one_gpu_are_not_returned_for_another():
    for gpu in (A30, T4, A30):
        fresh = LeastTimes.of([*relus(3)], gpu, float(gpu.boost_clock_mhz))
        moved = np.array([operation.bytes_read + operation.bytes_written for operation in relus(3)])
        assert np.allclose(fresh.memory_s / fresh.memory_s[0], moved / moved[0])
    assert not np.allclose(relative_features(relus(3), A30), relative_features(relus(3), T4))


def test_features_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        relative_features(relus(3), A30)[0, 0] = 1.0


def test_results_do_not_keep_the_predictor_alive_that_made_them():
    class Trees:
        """Many megabytes."""

    @cached
    def sums(operations, trees):
        return len(operations)

    trees = Trees()
    assert sums(relus(3), trees) == 3
    assert sums.knows(relus(3), trees)
    gone = weakref.ref(trees)
    del trees
    gc.collect()
    assert gone() is None
    assert not sums.knows(relus(3), Trees())
