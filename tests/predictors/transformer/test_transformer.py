"""A transformer: what it reads, what it learns of a simulated law, and what is stored of it."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from simulated_measurements import SLOWDOWN, simulated_dataset, simulated_gpu, simulated_operations

from joulecast import Operation
from joulecast.datasets import NetworkMeasurement
from joulecast.errors import DatasetError, InputError, UnknownNameError, ZooError
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.fitting.fit import fit_on_all, with_energies
from joulecast.predictors.formats.numbers import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.measured import DeviceRow
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features
from joulecast.predictors.recipes import TransformerRecipe
from joulecast.predictors.transformer.attentive import Attentive
from joulecast.predictors.transformer.encoder import (
    PHYSICS_NAMES,
    ROLES,
    UNKNOWN,
    WIDTH,
    Encoder,
    shapes,
    tokens,
)

torch = pytest.importorskip("torch")

from joulecast.predictors.transformer.fit import (  # noqa: E402
    TORCH,
    Examples,
    Muon,
    fit_transformer,
    reading,
    starting_weights,
    thinned,
    vocabulary_of,
)

TINY = TransformerRecipe(width=16, heads=2, kind_layers=1, kind_feed_forward=2, epochs=40, batch=32, learning_rate=1e-2)
QUICK = replace(TINY, epochs=1, together=0.5)
ONE_STACK = {"network_layers": 3, "operation_layers": 0, "kind_layers": 0}
A30, T4 = find_gpu("A30"), find_gpu("T4")


def device_s(gpu, operations):
    least_s = LeastTimes.of(operations, gpu, gpu.boost_clock_mhz).time_s
    return least_s * np.array([SLOWDOWN[operation.kind] for operation in operations])


def rows_of(operations):
    """A law that holds on two GPUs: each kind is slower than physics by a factor of its own."""
    return [
        DeviceRow(gpu, operation, seconds, 120.0 if gpu is A30 else None)
        for gpu in (A30, T4)
        for operation, seconds in zip(operations, device_s(gpu, operations).tolist(), strict=True)
    ]


def made_networks(slower=1.25):
    """Networks that take longer than the sum of their operations, by the same factor each."""
    large = [operation for operation in simulated_operations() if operation.flops > 1e8]
    found = []
    for first in range(0, len(large) - 6, 3):
        network = Network.of([(operation, 4) for operation in large[first : first + 6]], name=f"network{first}")
        time_s = slower * 4 * float(device_s(A30, [entry.operation for entry in network]).sum())
        found.append(
            (A30, NetworkMeasurement(network.name, (1,), "fp32", "inference", time_s, 140, 140 * time_s), network)
        )
    return found


@cache
def quick():
    """A transformer that saw operations once, and networks; fitted once."""
    rows = rows_of(simulated_operations())
    return with_energies(fit_transformer([simulated_dataset()], rows, QUICK), rows, made_networks())


def arrays(sequences, operations, kinds=4):
    draw = np.random.default_rng(0)
    return (
        draw.normal(size=(sequences, operations, len(ROLES), WIDTH)).astype(np.float32),
        draw.integers(0, 8, (sequences, operations)),
        draw.integers(0, kinds, (sequences, operations)),
    )


def random_encoder(**settings):
    """Weights away from their start, where the last layers are zero, and wide bounds of the inputs."""
    recipe = replace(TINY, **settings)
    torch.manual_seed(1)
    weights = {name: each + 0.1 * torch.randn_like(each) for name, each in starting_weights(recipe, 4).items()}
    ends = {"lowest": torch.full_like(weights["lowest"], -9.0), "highest": torch.full_like(weights["highest"], 9.0)}
    return Encoder(recipe, {name: each.numpy() for name, each in (weights | ends).items()})


# What it reads.

OPERATIONS = OperationList([Operation("linear", [(32, 96)], {"out_features": 64}), Operation("relu", [(7, 5)])])


def test_tokens_of_operations():
    read = tokens(OPERATIONS, A30, (UNKNOWN, "linear"))
    assert read.values.shape == (2, len(ROLES), WIDTH)
    assert np.isfinite(read.values).all()
    assert read.kinds.tolist() == [1, 0]
    # 64 is the sixth power of two, and 96 lies between two.
    columns, reduction = (read.values[0, ROLES.index(role)] for role in ("columns", "reduction"))
    assert np.flatnonzero(columns[:21]).tolist() == [6]
    assert columns[6] == 1
    assert np.flatnonzero(reduction[:21]).tolist() == [6, 7]
    assert reduction[7] == pytest.approx(np.log2(96) - 6)


def test_token_of_physics_is_what_trees_see():
    seen = relative_features(OPERATIONS, A30)[:, [RELATIVE_NAMES.index(name) for name in PHYSICS_NAMES]]
    values = tokens(OPERATIONS, A30, (UNKNOWN,)).values[:, ROLES.index("physics")]
    logs = np.array([name.startswith("log_") for name in PHYSICS_NAMES])
    assert values[:, : len(logs)][:, logs] == pytest.approx(seen[:, logs], rel=1e-5)
    assert np.sinh(values[:, : len(logs)][:, ~logs]) == pytest.approx(seen[:, ~logs], rel=1e-5)


def test_tokens_in_units_are_read_as_they_are():
    rows = rows_of(simulated_operations())
    examples, role = Examples.of(rows, vocabulary_of(rows)), ROLES.index("physics")
    centre, unit = examples.units(role)
    scaled = (examples.values - centre) / unit
    varies = examples.values[:, role].std(axis=0) > 1e-3
    assert scaled[:, role][:, varies].std(axis=0) == pytest.approx(np.full(varies.sum(), 0.5), rel=1e-3)
    assert np.array_equal(np.delete(scaled, role, axis=1), np.delete(examples.values, role, axis=1))
    encoder = random_encoder()
    weights = {name: torch.from_numpy(each) for name, each in encoder.weights.items()}
    as_they_are = {n: w.numpy() for n, w in reading(weights, torch.from_numpy(centre), torch.from_numpy(unit)).items()}
    for each in (encoder.weights, as_they_are):
        each["lowest"], each["highest"] = np.float32(-1e9), np.float32(1e9)
    others = examples.families[:, None], np.zeros_like(examples.kinds)[:, None]
    expected = encoder(scaled[:, None], *others)
    assert Encoder(encoder.recipe, as_they_are)(examples.values[:, None], *others) == pytest.approx(expected, abs=1e-4)


def test_kinds_that_were_not_measured_alone_have_no_vector():
    assert quick().vocabulary == (UNKNOWN, "batch_norm", "conv2d", "linear", "relu")
    unknown = [Operation("sigmoid", [(8, 64)])]
    assert np.isfinite(quick().factors(unknown, A30)).all()


def test_thinning_keeps_rare_groups():
    rows = rows_of(simulated_operations())
    rare = [row for row in rows if row.operation.kind == "linear"][:2]
    many = [row for row in rows if row.operation.kind != "linear" and row.gpu is A30]
    kept = thinned(rare + many, 32, seed=0)
    assert len(kept) == 32
    assert kept[:2] == rare
    kinds = [row.operation.kind for row in kept]
    assert {kinds.count(kind) for kind in ("conv2d", "relu", "batch_norm")} == {10}
    assert thinned(rows, 1000, seed=0) == rows


# What it learns.


@pytest.mark.parametrize("settings", [{}, ONE_STACK], ids=["three stacks", "one"])
def test_layers(settings, dataset):
    recipe = replace(QUICK, **settings)
    encoder = fit_transformer([dataset], rows_of(simulated_operations()), recipe).encoder
    assert encoder(*arrays(2, 3)).shape == (2, 3)
    assert {name: each.shape for name, each in encoder.weights.items()} == shapes(recipe, 5)
    assert any("over_kinds" in name for name in encoder.weights) == (not settings)


@pytest.mark.parametrize("settings", [{}, ONE_STACK], ids=["three stacks", "one"])
@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (1, 30), (3, 5)], ids=str)
def test_numpy_says_what_torch_says(settings, shape):
    encoder, given = random_encoder(**settings), arrays(*shape)
    weights = {name: torch.from_numpy(each) for name, each in encoder.weights.items()}
    in_torch = Encoder(encoder.recipe, weights, TORCH).log_ratios(*map(torch.from_numpy, given))
    assert np.allclose(encoder(*given), in_torch.numpy(), atol=1e-5)


def test_attention_by_hand():
    """Scores of two tokens, 4 / sqrt(4), halve at a distance of one of two."""
    two = np.ones((1, 2, 4), np.float32)
    assert random_encoder().scores(two, two).tolist() == [[[2, 1], [1, 2]]]


def test_an_operation_sees_where_others_stand():
    encoder, given = random_encoder(), arrays(1, 3)
    turned = tuple(array[:, [0, 2, 1]] for array in given)
    first = [encoder(*each)[0, 0] for each in (given, turned)]
    assert not np.allclose(*first, atol=1e-5)


def test_sequences_do_not_see_each_other_and_inputs_are_clipped():
    encoder, given = random_encoder(), arrays(2, 3)
    alone = encoder(*(array[:1] for array in given))
    assert np.allclose(encoder(*given)[:1], alone, atol=1e-5)
    encoder.weights["lowest"][:], encoder.weights["highest"][:] = -1, 1
    values, *others = given
    inside = np.clip(values, -1, 1)
    far, half = np.where(np.abs(values) >= 1, 100 * values, values), 0.5 * inside
    one, other, third = (encoder(each, *others) for each in (inside, far, half))
    assert np.array_equal(one, other)
    assert not np.allclose(one, third)


def test_same_seed_same_weights_and_torch_stays_as_it_was(dataset):
    rows = rows_of(simulated_operations())
    torch.manual_seed(99)
    expected = torch.rand(1)
    torch.manual_seed(99)
    again, other = (fit_transformer([dataset], rows, replace(QUICK, seed=seed)) for seed in (QUICK.seed, 1))
    assert torch.rand(1) == expected  # Fitting leaves torch as it was.
    assert again.encoder.to_bytes() == quick().encoder.to_bytes() != other.encoder.to_bytes()


def test_learns_a_law(dataset):
    operations = simulated_operations()
    held = operations[::5]
    learned = fit_transformer([dataset], rows_of([o for o in operations if o not in held]), TINY)
    for gpu in (A30, T4):
        least_s = LeastTimes.of(held, gpu, gpu.boost_clock_mhz).time_s
        error = np.abs(least_s * learned.factors(held, gpu) / device_s(gpu, held) - 1)
        # Physics alone is off by 29 % (1 - 1 / 1.4) in the median.
        assert np.median(error) < 0.05
        assert error.max() < 0.3
    with pytest.raises(DatasetError, match="too few"):
        fit_transformer([dataset], rows_of(operations)[:50], QUICK)


def test_a_transformer_has_its_losses_by_epoch():
    tiny = replace(QUICK, width=8, epochs=6, together=0.3)
    curves = fit_on_all([simulated_gpu("A30")], (), tiny).curves
    assert set(curves) == {f"transformer/loss_{how}" for how in ("alone", "together")}
    alone = np.array(curves["transformer/loss_alone"])
    assert len(alone) == 6
    assert np.nanmean(alone[-2:]) < np.nanmean(alone[:2])


# Muon: what a step does to matrices.


@pytest.mark.parametrize("shape", [(6, 6), (12, 4), (3, 12, 4)], ids=str)
def test_a_step_of_muon_moves_all_directions_of_the_gradient_alike(shape):
    torch.manual_seed(0)
    matrices = torch.zeros(shape, requires_grad=True)
    matrices.grad = torch.randn(shape)
    Muon([matrices], 0.1).step()
    left, _, right = torch.linalg.svd(matrices.grad, full_matrices=False)
    moved = (left.mT @ -matrices.detach() @ right.mT) / (0.1 * (shape[-2] / shape[-1]) ** 0.5)
    along = moved.diagonal(dim1=-2, dim2=-1)
    assert (along - 1).abs().max() < 0.4
    assert (moved - torch.diag_embed(along)).abs().max() < 1e-4


def test_muon_goes_on_in_the_direction_of_the_last_steps():
    matrix = torch.zeros(4, 4, requires_grad=True)
    optimizer = Muon([matrix], 0.1)
    for gradient in (torch.eye(4), torch.zeros(4, 4)):
        before = matrix.detach().clone()
        matrix.grad = gradient
        optimizer.step()
        assert (before - matrix.detach()).diagonal().min() > 0.05


# What is stored.

# Name -> damage to the arrays and texts of stored weights, or to the facts beside them.
HOSTILE = {
    "an array is missing": lambda arrays, texts, facts: arrays.pop("over_kinds.0.gather.bias"),
    "one too many": lambda arrays, texts, facts: arrays.update(more=np.zeros(3, np.float32)),
    "another shape": lambda arrays, texts, facts: arrays.update(roles=np.zeros((16, 10), np.float32)),
    "no dimensions": lambda arrays, texts, facts: arrays.update({"kind.weight": np.zeros((), np.float32)}),
    "fp64": lambda arrays, texts, facts: arrays.update(roles=arrays["roles"].astype(float)),
    "another kind of file": lambda arrays, texts, facts: texts.update(kind="trees"),
    "a wider vector": lambda arrays, texts, facts: facts["recipe"].update(width=32),
    "more kinds": lambda arrays, texts, facts: facts["vocabulary"].append("gelu"),
    "no heads": lambda arrays, texts, facts: facts["recipe"].update(heads=0),
    "layers by the thousand": lambda arrays, texts, facts: facts["recipe"].update(kind_layers=9999),
    "an unknown setting": lambda arrays, texts, facts: facts["recipe"].update(depth=3),
    "other tokens": lambda arrays, texts, facts: facts.update(tokens=["kind"]),
    "a range without an end": lambda arrays, texts, facts: facts["ranges"].update(relu=[0.0]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_damage_is_refused(change):
    facts, files = quick().to_files()
    facts = json.loads(json.dumps(facts))
    ((name, stored),) = files.items()
    assert Attentive.from_files(facts, files).to_files() == (facts, files)
    stored_arrays, texts = arrays_from_bytes(stored)
    change(stored_arrays, texts, facts)
    with pytest.raises((InputError, UnknownNameError, ZooError, ValueError, TypeError)):
        Attentive.from_files(facts, {name: arrays_to_bytes(stored_arrays, texts)})


def test_a_kind_outside_the_vocabulary_is_one_error():
    values, families, kinds = arrays(1, 3)
    with pytest.raises(ZooError, match="cannot compute") as caught:
        Attentive.from_files(*quick().to_files()).encoder(values, families, kinds + 10_000)
    assert "out of bounds" in str(caught.value.given)


def test_long_lists_are_read_in_parts_and_known_ones_not_again():
    operations, calls = [entry.operation for entry in made_networks()[0][2]], []

    def counting(*given):
        calls.append(len(given[0]))
        return quick().encoder(*given)

    learned, listed = replace(quick(), encoder=counting), OperationList(operations * 60)
    read = [learned.log_ratios(listed, gpu) for gpu in (A30, T4)]
    assert calls == [256, len(listed) - 256] * 2
    for gpu, ratios in zip((A30, T4), read, strict=True):
        assert np.allclose(ratios, [*quick().log_ratios(OperationList(operations), gpu)] * 60, rtol=1e-5)
    assert not np.allclose(*read, rtol=1e-3)
    once, again = (learned.factors(listed, A30) for _ in range(2))
    assert np.array_equal(once, again)
    assert len(calls) == 6
