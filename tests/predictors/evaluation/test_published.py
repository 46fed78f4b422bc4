"""The page of published tables: it is up to date, and its parts compute what the sources describe."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated_measurements import SLOWER_THAN_PHYSICS, simulated_gpu

from joulecast import Network, Operation
from joulecast.datasets import Card, Dataset, Measurement

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def _benchmarks_can_be_imported():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def test_no_section_is_older_than_what_made_it(tmp_path):
    import published

    page = published.PAGE.read_text("utf-8")
    # Without the measurements, their digests cannot be compared.
    old = published.outdated(page, published.SECTIONS, tmp_path)
    assert not old, f"make them again: python benchmarks/published.py {' '.join(old)}"


def test_sections_that_changed_are_outdated(tmp_path):
    from published_page import Section, marked, outdated, read_sections

    (tmp_path / "source.csv").write_text("1")
    section = Section("Title", ("speed.py",), ("predictors/forest.toml",), ("source.csv",))
    page = "head\n\n" + marked("one", section, tmp_path, "text")
    assert read_sections(page)["one"].endswith("## Title\n\ntext")
    assert outdated(page, {"one": section}, tmp_path) == []
    assert outdated(page, {"one": section, "two": section}, tmp_path) == ["two"]
    assert outdated(page, {"one": replace(section, code=("clocks.py",))}, tmp_path) == ["one"]
    assert outdated(page, {"one": replace(section, inputs=("predictors/xgboost.toml",))}, tmp_path) == ["one"]
    (tmp_path / "source.csv").write_text("2")
    assert outdated(page, {"one": section}, tmp_path) == ["one"]
    (tmp_path / "source.csv").unlink()
    assert outdated(page, {"one": section}, tmp_path) == []


def test_inputs_of_a_forest_are_those_of_the_module():
    from nicolai_features import cells_of, matrix_of

    conv = cells_of("Conv2d(3, 64, kernel_size=(7, 5), stride=(2, 2), bias=False)", (32, 3, 224, 200), 1440)
    assert (conv["in_channels"], conv["out_channels"], conv["bias"], conv["bias_applicable"]) == (3, 64, 0, 1)
    assert (conv["kernel_size_0"], conv["kernel_size_1"], conv["kernel_size_tuple_applicable"]) == (7, 5, 1)
    assert (conv["padding_0"], conv["eps"], conv["eps_applicable"], conv["clockspeed"]) == (0, -1, 0, 1440)
    linear = cells_of("Linear(in_features=8, out_features=4, bias=True)", (32, 8), 1440)
    assert (linear["input_size_1"], linear["input_size_2"], linear["input_size_2_applicable"]) == (8, -1, 0)
    inputs, names = matrix_of([conv, linear])
    by_name = dict(zip(names, inputs.T, strict=True))
    assert by_name["type_Conv2d"].tolist() == [1, 0]
    # Attributes that only another kind has get no value, and a flag that says so.
    assert by_name["kernel_size_0"].tolist() == [7, -1]
    assert by_name["kernel_size_tuple_applicable"].tolist() == [1, 0]
    with pytest.raises(TypeError, match="printed module"):
        cells_of("3", (1,), 1440)


def test_splits(dataset):
    from nicolai_operations import Rows, folds_over_operations, folds_over_rows, test_rows

    rows = Rows([m for m in dataset.measurements for _ in range(3)], np.empty((0, 0)), [])
    count = len(rows.measurements)
    for folds in (folds_over_rows(rows, 5), folds_over_operations(rows, 5)):
        assert sorted(np.concatenate(folds).tolist()) == list(range(count))
    held = [{rows.measurements[place].operation for place in fold} for fold in folds_over_operations(rows, 5)]
    assert not set.intersection(*held[:2])
    test = test_rows(rows)
    assert int(np.argmax(rows.targets("time"))) not in test
    assert len(test) == int(np.ceil(0.2 * (count - 4)))


def test_a_network_is_summed_with_error_bars(dataset):
    from nicolai_networks import summed

    first, second, third = dataset.measurements[:3]
    known = {
        first.operation: replace(first, time_s=2.0, time_std_s=0.3, energy_j=5.0, energy_std_j=1.0),
        second.operation: replace(second, time_s=1.0, time_std_s=0.4, energy_j=7.0, energy_std_j=2.0),
    }
    network = Network.of([(first.operation, 4), (second.operation, 1), (third.operation, 6)])
    found = summed(network, known)
    # 4 x 2 + 1; the root of 4 x 0.09 + 0.16; 4 x 5 + 7; the root of 4 + 4.
    assert (found.time_s, found.energy_j, found.calls, found.missing) == (9.0, 27.0, 5, 6)
    assert found.time_std_s == pytest.approx(0.52**0.5)
    assert found.energy_std_j == pytest.approx(8**0.5)


def test_an_lstm_is_another_reader_of_the_same_tokens():
    torch = pytest.importorskip("torch")
    from deeppm_variants import OperationLstm, starting_lstm

    from joulecast.predictors.recipes import TransformerRecipe
    from joulecast.predictors.transformer.encoder import ROLES, WIDTH

    torch.manual_seed(0)
    recipe = TransformerRecipe(width=8)
    weights = {name: each.numpy() for name, each in starting_lstm(recipe, 3).items()}
    weights["head.weight"][:], weights["lowest"][:], weights["highest"][:] = 1, -9, 9
    encoder, draw = OperationLstm(recipe, weights), np.random.default_rng(0)
    values, names = draw.normal(size=(1, 4, len(ROLES), WIDTH)).astype(np.float32), np.zeros((1, 4), dtype=np.int64)
    changed = values.copy()
    changed[0, 2] += 1
    ratios, again = (encoder(each, names, names) for each in (values, changed))
    # It reads from the first operation to the last: what comes before the change stays.
    assert np.array_equal(ratios[0, :2], again[0, :2])
    assert not np.allclose(ratios[0, 2:], again[0, 2:])


PLAIN = {"distance_weighting": False}
KIND = {"operation_vector": "kind"}
VARIANTS = {
    "ours": ({}, True),
    "without weighting": (PLAIN, False),
    "kinds": (PLAIN | KIND, False),
    "kinds and places": (PLAIN | KIND | {"positional_encoding": True}, True),
    "standard encoder": (PLAIN | {"layer_norm": True}, False),
}


@pytest.mark.parametrize(("settings", "sees"), VARIANTS.values(), ids=VARIANTS)
def test_variants_see_where_operations_stand_by_weighting_or_places(settings, sees):
    torch = pytest.importorskip("torch")
    from deeppm_variants import Variant, VariantRecipe, starting_variant

    from joulecast.predictors.transformer.encoder import ROLES, WIDTH
    from joulecast.predictors.transformer.fit import TORCH

    torch.manual_seed(1)
    recipe = VariantRecipe(width=16, kind_layers=1, kind_feed_forward=2, **settings)
    weights = {name: each + 0.1 * torch.randn_like(each) for name, each in starting_variant(recipe, 4).items()}
    weights["lowest"][:], weights["highest"][:] = -9, 9
    draw = np.random.default_rng(0)
    values = draw.normal(size=(1, 3, len(ROLES), WIDTH)).astype(np.float32)
    given = values, draw.integers(0, 8, (1, 3)), draw.integers(0, 4, (1, 3))
    encoder = Variant(recipe, {name: each.numpy() for name, each in weights.items()})
    in_torch = Variant(recipe, weights, TORCH).log_ratios(*map(torch.from_numpy, given))
    assert np.allclose(encoder(*given), in_torch.numpy(), atol=1e-5)
    turned = tuple(array[:, [0, 2, 1]] for array in given)
    assert np.allclose(encoder(*given)[0, 0], encoder(*turned)[0, 0], atol=1e-5) is not sees
    two = np.ones((1, 2, 4), np.float32)
    assert encoder.scores(two, two).tolist() == [[[2, 1], [1, 2]] if not settings else [[2, 2], [2, 2]]]


def test_parts_of_variants_by_hand():
    """A normalized vector has mean 0 and deviation 1; places are sin and cos of place / 10000 ** (2 i / width)."""
    pytest.importorskip("torch")
    from deeppm_variants import Variant, VariantRecipe, sinusoids

    normed = Variant(VariantRecipe(), {"n.weight": np.float32(1), "n.bias": np.float32(0)})
    found = normed.normalized("n", np.array([[1.0, 3.0, 5.0]]))
    assert found == pytest.approx(np.array([[-1, 0, 1]]) * 1.5**0.5, abs=1e-4)
    place, pair, width = 5, 3, 16  # Vaswani et al., section 3.5
    angle = place / 10000 ** (2 * pair / width)
    assert sinusoids(6, width)[place, pair] == pytest.approx(np.sin(angle), abs=1e-6)
    assert sinusoids(6, width)[place, width // 2 + pair] == pytest.approx(np.cos(angle), abs=1e-6)


def test_errors_of_physics_alone_are_the_slowdowns():
    import counted

    found = counted.errors(simulated_gpu("V100 PCIe 32GB"))
    for kind in ("conv2d", "relu", "batch_norm"):
        assert found[kind][1:] == pytest.approx([1 - 1 / SLOWER_THAN_PHYSICS[kind]] * 2, rel=1e-6)


def test_single_products_that_are_counted_over_their_call():
    """A product of 2 x 512^3 FLOPs takes 17 us at the peak of a V100: a call of 1 us is too short for it."""
    import counted

    sizes = [(1, 512, 512), (1, 512, 512)]
    calls = [(sizes, 1e-6), ([(1, 512, 256), (1, 256, 512)], 1e-3), ([(8, 512, 512), (8, 512, 512)], 1e-6)]
    measurements = [Measurement(Operation("matmul", shapes), each_s, 100.0, each_s * 100.0) for shapes, each_s in calls]
    card = Card("Tesla V100-PCIE-32GB", None, "simulated", "none", {"simulated": "simulated"})
    assert counted.single_products(Dataset(card, tuple(measurements))) == (2, 1)
