"""Tables with one row for each operation."""

import copy

import numpy as np
import pytest

from joulecast import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics import operation_rows
from joulecast.predictors.physics.operation_rows import OperationRows


def relus(*sizes):
    return OperationList(Operation("relu", [(size, 3)]) for size in sizes)


class Table:
    """Sizes of operations and their squares, with a note of which sizes were computed."""

    def __init__(self):
        self.rows, self.made = OperationRows(2), []

    def of(self, operations):
        return self.rows.of(operations, self._make)

    def _make(self, operations):
        sizes = [operation.input_shapes[0][0] for operation in operations]
        self.made.append(sizes)
        return np.array([(size, size**2) for size in sizes], dtype=float)


@pytest.fixture
def few(monkeypatch):
    """Room for ten operations."""
    monkeypatch.setattr(operation_rows, "MOST_OPERATIONS", 10)
    monkeypatch.setattr(operation_rows, "_NUMBERING", operation_rows._Numbering())


def test_each_operation_is_computed_once_whatever_list_it_is_in():
    table = Table()
    assert table.of(relus(5, 7)).tolist() == [[5, 25], [7, 49]]
    assert table.of(relus(7, 6, 5, 7)).tolist() == [[7, 49], [6, 36], [5, 25], [7, 49]]
    assert table.made == [[5, 7], [6]]


def test_tables_do_not_mix_up_operations_that_another_one_saw_first():
    one, other = Table(), Table()
    one.of(relus(31, 32, 33))
    assert other.of(relus(33, 34)).tolist() == [[33, 1089], [34, 1156]]
    assert one.of(relus(34, 31)).tolist() == [[34, 1156], [31, 961]]


def test_when_there_are_too_many_all_are_forgotten_and_no_row_is_wrong(few):
    table, first = Table(), relus(*range(1, 9))
    for operations in (first, relus(*range(11, 19)), first, relus(5, 11)):
        sizes = [operation.input_shapes[0][0] for operation in operations]
        assert table.of(operations).tolist() == [[size, size**2] for size in sizes]
    assert table.made == [[*range(1, 9)], [*range(11, 19)], [*range(1, 9)], [11]]


def test_a_list_that_is_longer_than_the_table_is_right_and_its_first_operations_are_stored(few):
    table, sizes = Table(), [*range(1, 26)]
    for _ in range(2):
        assert table.of(relus(*sizes))[:, 1].tolist() == [size**2 for size in sizes]
    assert table.made[1] == sizes[10:]


def test_operations_of_any_number_of_inputs_are_not_stored():
    table, many = Table(), OperationList([Operation("cat", [(2, 3)] * 40, {"dim": 1})])
    for _ in range(2):
        assert table.of(many).tolist() == [[2, 4]]
    assert table.made == [[2], [2]]


def test_a_copy_for_another_process_is_empty():
    table = Table()
    table.of(relus(3))
    copied = copy.copy(table.rows)  # as pickle makes it
    assert copied.of(relus(3), lambda some: np.full((len(some), 2), 8.0)).tolist() == [[8, 8]]
