"""What a change may add, in reviews: budgets, verdicts, and the fixture for pytest."""

import pytest

import joulecast
from joulecast.errors import BudgetError, InputError, UnknownNameError
from joulecast.queries.budgets import Budget, Review

pytest_plugins = ("pytester",)


@pytest.mark.parametrize(
    ("written", "budget"),
    [
        ("energy=+5%", Budget("energy", 0.05, relative=True)),
        ("energy = 5 %", Budget("energy", 0.05, relative=True)),
        ("energy=3J", Budget("energy", 3.0, relative=False)),
        ("time=20ms", Budget("time", 0.02, relative=False)),
        ("time=.5us", Budget("time", 0.5e-6, relative=False)),
        ("power=0.3 kW", Budget("power", 300.0, relative=False)),
        ("memory=8GB", Budget("memory", 8e9, relative=False)),
    ],
)
def test_budgets_as_people_write_them(written, budget):
    found = Budget.of(written)
    assert (found.measure, found.relative) == (budget.measure, budget.relative)
    assert found.limit == pytest.approx(budget.limit, rel=1e-12)


def test_other_budgets_are_refused():
    for written in ("energy", "energy=", "energy=5", "energy=5W", "time=-3ms", "memory=8GiB"):
        with pytest.raises(InputError, match="not a budget"):
            Budget.of(written)
    with pytest.raises(UnknownNameError):
        Budget.of("joules=3J")


@pytest.fixture(scope="module")
def networks():
    """A small network and one of the same kind with more layers."""
    return [joulecast.predict(name, (1, 3, 224, 224), "A30").to_dict() for name in ("resnet18", "resnet34")]


def test_a_review_compares_and_decides(networks):
    small, large = networks
    growth = large["energy_j"] / small["energy_j"] - 1
    fits, exceeds = (Budget("energy", growth * factor, relative=True) for factor in (1.001, 0.999))
    Review(large, small, [fits]).require()
    review = Review(large, small, [fits, exceeds, Budget("memory", 1e12, relative=False)])
    assert review.exceeded == [exceeds]
    with pytest.raises(BudgetError, match="over its budget") as caught:
        review.require()
    assert f"{100 * growth:+.1f} %" in caught.value.given
    energy = next(line for line in review.to_markdown().splitlines() if line.startswith("| energy"))
    assert energy.split(" | ")[3] == f"{100 * growth:+.1f} %"
    assert energy.endswith("| over budget |")
    # ResNet-34 has 11 equal convolutions where ResNet-18 has 3.
    assert "| 11 x conv2d 1x256x14x14 k3 tf32 | - |" in review.to_markdown().partition("changed most")[2]
    assert "changed most" not in Review(small, small, []).to_markdown()
    with pytest.raises(InputError, match="something to compare with"):
        Review(small, None, [Budget.of("energy=+5%")])
    assert Review(small, None, [Budget.of("energy=1uJ")]).exceeded


def test_the_fixture_of_pytest(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # an installed joulecast has registered it already
    pytester.makepyfile(
        """
        def test_within(assert_energy):
            assert_energy("resnet18", (1, 3, 224, 224), "A30", "energy=10J", "time=1s")

        def test_over(assert_energy):
            assert_energy("resnet18", (1, 3, 224, 224), "A30", "energy=1uJ", mode="training")
        """
    )
    done = pytester.runpytest("-p", "joulecast.pytest_plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*energy*over budget*"])
