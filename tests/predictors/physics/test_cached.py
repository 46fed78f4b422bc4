"""Results that are cached for networks on GPUs, and tables with one row for each operation."""

import copy
import gc
import weakref

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics import cached as kept
from joulecast.predictors.physics.cached import _MOST_OF_ONE, OperationRows, cached

A30, T4 = find_gpu("A30"), find_gpu("T4")


def relus(*sizes):
    return OperationList(Operation("relu", [(size, 3)]) for size in sizes)


@pytest.mark.parametrize(("length", "made"), [(3, 2), (_MOST_OF_ONE + 1, 4)], ids=["network", "long list"])
def test_equal_networks_share_a_cached_result_and_long_lists_are_not_cached(length, made):
    calls = []

    @cached
    def counting(operations, gpu):
        calls.append(gpu)
        return len(operations), gpu

    for gpu in (A30, T4, A30, T4):
        assert counting(relus(*range(1, length + 1)), gpu) == (length, gpu)
    assert len(calls) == made


def test_results_that_were_computed_together_are_found():
    @cached
    def never(operations, gpu):
        raise AssertionError("asked again")

    assert not never.knows(relus(1, 2), A30)
    never.put("of both", relus(1, 2), A30)
    assert never.knows(relus(1, 2), A30)
    assert not never.knows(relus(1, 2), T4)
    assert never(relus(1, 2), A30) == "of both"


def test_results_do_not_keep_the_predictor_alive_that_made_them():
    class Trees:
        """Many megabytes."""

    @cached
    def sums(operations, trees):
        return len(operations)

    trees = Trees()
    assert sums(relus(1, 2), trees) == 2
    assert sums.knows(relus(1, 2), trees)
    gone = weakref.ref(trees)
    del trees
    gc.collect()
    assert gone() is None
    assert not sums.knows(relus(1, 2), Trees())


class Table:
    """Sizes of operations and their squares, with a note of which sizes were computed."""

    def __init__(self):
        self.rows, self.made = OperationRows(2), []

    def squares_of(self, operations):
        return self.rows.of(operations, self._make)[:, 1].tolist()

    def _make(self, operations):
        sizes = [operation.input_shapes[0][0] for operation in operations]
        self.made.append(sizes)
        return np.array([(size, size**2) for size in sizes], dtype=float)


@pytest.fixture
def few(monkeypatch):
    """Room for ten operations."""
    monkeypatch.setattr(kept, "MOST_OPERATIONS", 10)


def test_each_operation_is_computed_once_whatever_list_it_is_in():
    table, other = Table(), Table()
    assert table.squares_of(relus(5, 7)) == [25, 49]
    assert table.squares_of(relus(7, 6, 5, 7)) == [49, 36, 25, 49]
    assert table.made == [[5, 7], [6]]
    # Another table saw none of them, and neither did a copy for another process, as pickle makes it.
    copied = copy.copy(table.rows)
    assert copied.of(relus(5), lambda some: np.full((len(some), 2), 8.0)).tolist() == [[8, 8]]
    assert other.squares_of(relus(6, 34)) == [36, 1156]
    assert table.squares_of(relus(34, 5)) == [1156, 25]
    assert (table.made, other.made) == ([[5, 7], [6], [34]], [[6, 34]])


def test_when_there_are_too_many_all_are_forgotten_and_no_row_is_wrong(few):
    table, first, second = Table(), relus(*range(1, 9)), relus(*range(11, 19))
    for listed in (first, second, first, relus(5, 11)):
        assert table.squares_of(listed) == [operation.input_shapes[0][0] ** 2 for operation in listed]
    assert table.made == [[*range(1, 9)], [*range(11, 19)], [*range(1, 9)], [11]]


def test_a_list_that_is_longer_than_the_table_is_right_and_its_first_operations_are_stored(few):
    table, sizes = Table(), [*range(1, 26)]
    for _ in range(2):
        assert table.squares_of(relus(*sizes)) == [size**2 for size in sizes]
    assert table.made[1] == sizes[10:]


def test_operations_of_any_number_of_inputs_are_not_stored():
    table, many = Table(), OperationList([Operation("cat", [(2, 3)] * 40, {"dim": 1})])
    assert [table.squares_of(many), table.squares_of(many)] == [[4], [4]]
    assert table.made == [[2], [2]]
