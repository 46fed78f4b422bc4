"""What a transformer reads: operations as tokens, and in which units."""

import numpy as np
import pytest
from simulated_measurements import simulated_operations

from joulecast import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features
from joulecast.predictors.transformer.encoder import PHYSICS_NAMES, ROLES, UNKNOWN, WIDTH, Encoder, tokens

torch = pytest.importorskip("torch")

from small_transformers import A30, quick, random_encoder, rows_of  # noqa: E402

from joulecast.predictors.transformer.fit import Examples, reading, thinned, vocabulary_of  # noqa: E402

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
