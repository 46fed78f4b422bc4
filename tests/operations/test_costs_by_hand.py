"""FLOPs and bytes of every kind, inference and training, against arithmetic written out by hand.

Nothing in the tables is computed by the package: sizes are multiplied out in each row (`costs_of_*.py`). Bytes are
those of fp32: four for each element, eight for an index, one for a truth value. A training operation is its forward and
its backward together.
"""

import pytest
from costs_of_elements import ELEMENTS
from costs_of_indices import INDICES
from costs_of_layers import LAYERS
from hand_costs import Case, Cost

from joulecast import Operation
from joulecast.operations.kinds import KINDS

CASES: dict[str, list[Case]] = {**LAYERS, **ELEMENTS, **INDICES}
ROWS = [(kind, case) for kind, cases in CASES.items() for case in cases]
IDS = [f"{kind}-{cases.index(case)}" for kind, cases in CASES.items() for case in cases]


def test_every_kind_has_a_row():
    assert CASES.keys() == KINDS.keys()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("kind", "case"), ROWS, ids=IDS)
def test_costs(kind, case, mode):
    operation = Operation(kind, case.shapes, case.attributes, mode=mode)
    assert Cost(operation.flops, operation.bytes_read, operation.bytes_written) == getattr(case, mode)


def test_half_precision_halves_values_but_not_indices():
    gathered = Operation("gather", [(2, 3, 4), (2, 2, 4)], {"dim": 1}, precision="bf16")
    assert gathered.bytes_read == 8 * 16 + 2 * 16
    # One pass less: bf16 has two times eight bits.
    assert Operation("sort", [(2, 8192)], precision="bf16").bytes_read == 2 * 16384 + 10 * 16384


def test_recurrent_steps_wait_for_one_another():
    lstm = Operation("lstm", [(128, 64, 256)], {"hidden_size": 512, "num_layers": 2})
    assert lstm.steps == 129  # the second layer runs a step behind the first
    assert Operation("relu", [(3,)]).steps == 1
