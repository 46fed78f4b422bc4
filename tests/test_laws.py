"""A sample of the laws that must hold between predictions; benchmarks/laws.py checks them on 200,000 cases."""

import pytest

from conftest import benchmark
from joulecast import Operation
from joulecast.hardware import find_gpu

with benchmark("laws") as laws:
    from law import Subject

OPERATIONS, AT_ONCE = 400, 25
# Laws that this sample sees broken today, each with the item of the list that mends it. Whoever mends one removes its
# line. benchmarks/LAWS.md counts the rare ones too, such as fp8 products on boards of which nothing was measured.
BROKEN = {
    "growth of time": "work doubled",
    "growth of energy": "work doubled",
    "siblings": "item 3",
}


@pytest.fixture(scope="module")
def tallies():
    return laws.run(Subject(), OPERATIONS, at_once=AT_ONCE)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(reason=BROKEN[name], strict=True)] if name in BROKEN else [])
        for name in laws.LAWS
    ],
)
def test_a_law_holds(tallies, name):
    tally = tallies[name]
    assert tally.cases
    assert tally.meets_goal, f"{tally.broken} of {tally.cases}, the worst: {tally.worst}"


@pytest.mark.parametrize("rows", [342, 700, 5000])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_tiny_product_does_not_draw_what_long_ones_do(mode, rows):
    """It cost 161 times as much with half the rows, where TF32 is as quick as fp32: power was read of long products."""
    predictor = Subject().operations(find_gpu("B300"), mode)
    found = predictor.predict(
        [Operation("linear", [(m, 4)], {"out_features": 12}, precision="tf32", mode=mode) for m in (rows, 2 * rows)]
    )
    once_j, twice_j = found.dynamic_energy_j
    assert once_j <= twice_j < 4 * once_j


class Wrong(Subject):
    """Times that are twenty to a hundred times too short, with three times the energy."""

    def operations(self, gpu, mode, predictor=None):
        right = super().operations(gpu, mode, predictor)

        class Halved:
            gpu = right.gpu

            def predict(self, operations, clock_mhz=None):
                found = right.predict(operations, clock_mhz)
                return found.times(0.05 if clock_mhz is None else 0.01, 3.0)

        return Halved()


def test_a_broken_law_is_found():
    """The laws are checked themselves: a predictor that breaks them must not pass."""
    names = ("floor", "peak", "bandwidth", "power", "clock")
    found = laws.run(Wrong(), 200, names=names, at_once=50)
    assert all(found[name].broken > 10 for name in names)
