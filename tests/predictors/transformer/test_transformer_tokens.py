"""What a transformer reads: operations as tokens, and in which units."""

import numpy as np
import pytest
from simulated_measurements import simulated_operations

from joulecast import Operation
from joulecast.predictors.physics.relative import RELATIVE_NAMES, relative_features
from joulecast.predictors.transformer.fit import Examples, thinned, vocabulary_of
from joulecast.predictors.transformer.tokens import IN_NETWORK, PHYSICS_NAMES, ROLES, UNKNOWN, WIDTH, in_network, tokens

torch = pytest.importorskip("torch")

from small_transformers import A30, arrays, quick, random_model, rows_of, torch_encoder  # noqa: E402


@pytest.fixture(scope="module", name="quick")
def _quick():
    return quick()


def test_tokens_of_operations():
    operations = [Operation("linear", [(32, 96)], {"out_features": 64}), Operation("relu", [(7, 5)])]
    read = tokens(operations, A30, 1440, (UNKNOWN, "linear"))
    assert read.values.shape == (2, len(ROLES), WIDTH)
    assert np.isfinite(read.values).all()
    assert read.kinds.tolist() == [1, 0]
    columns = read.values[0, ROLES.index("columns")]
    # 64 is the sixth power of two.
    assert np.flatnonzero(columns[:21]).tolist() == [6]
    assert columns[6] == 1


def test_size_between_powers_of_two():
    read = tokens([Operation("linear", [(32, 96)], {"out_features": 64})], A30, 1440, (UNKNOWN,))
    reduction = read.values[0, ROLES.index("reduction")]
    assert np.flatnonzero(reduction[:21]).tolist() == [6, 7]
    assert reduction[7] == pytest.approx(np.log2(96) - 6)


def test_clock_changes_the_least_time_only():
    operation = Operation("linear", [(512, 512)], {"out_features": 512})
    slow, fast = (tokens([operation], A30, clock, (UNKNOWN,)) for clock in (600, 1440))
    assert np.array_equal(slow.values, fast.values)
    assert slow.least.time_s > 2 * fast.least.time_s


def test_token_of_physics_is_what_trees_see():
    operations = [Operation("linear", [(32, 96)], {"out_features": 64}), Operation("relu", [(7, 5)])]
    seen = relative_features(operations, A30)[:, [RELATIVE_NAMES.index(name) for name in PHYSICS_NAMES]]
    values = tokens(operations, A30, 1440, (UNKNOWN,)).values[:, ROLES.index("physics")]
    logs = np.array([name.startswith("log_") for name in PHYSICS_NAMES])
    assert values[:, : len(logs)][:, logs] == pytest.approx(seen[:, logs], rel=1e-5)
    assert np.sinh(values[:, : len(logs)][:, ~logs]) == pytest.approx(seen[:, ~logs], rel=1e-5)
    assert "generation" not in PHYSICS_NAMES


def test_tokens_in_units_are_read_as_they_are():
    rows = rows_of(simulated_operations())
    examples = Examples.of(rows, vocabulary_of(rows))
    before, role = examples.values.copy(), ROLES.index("physics")
    centre, unit = examples.normalize(role)
    after = examples.values
    varies = before[:, role].std(axis=0) > 1e-3
    assert after[:, role][:, varies].std(axis=0) == pytest.approx(np.full(varies.sum(), 0.5), rel=1e-3)
    assert np.array_equal(np.delete(before, role, axis=1), np.delete(after, role, axis=1))
    model = random_model()
    model.lowest.copy_(torch.from_numpy(np.quantile(after, 0.2, axis=0)))
    model.highest.copy_(torch.from_numpy(np.quantile(after, 0.8, axis=0)))
    others = examples.families[:, None], np.zeros_like(examples.kinds)[:, None], np.ones((len(rows), 1), np.float32)
    expected = torch_encoder(model)(after[:, None], *others)[0]
    model.read_as_they_are(torch.from_numpy(centre), torch.from_numpy(unit))
    assert torch_encoder(model)(before[:, None], *others)[0] == pytest.approx(expected, abs=1e-4)


def test_only_four_numbers_of_a_token_depend_on_the_network():
    values = arrays(1, 3)[0][0]
    within = in_network(values, np.array([1.0, 2.0, 1.0]), np.array([1.0, 1.0, 1.0]), np.array([0.5, 0.5, 0.5]))
    changed = np.argwhere(within != values)
    assert set(changed[:, 1]) == {ROLES.index("kind")}
    assert set(changed[:, 2]) == set(range(WIDTH - IN_NETWORK, WIDTH))
    assert within[:, 0, -3].tolist() == [0.25, 0.5, 0.25]


def test_kinds_that_were_not_measured_alone_have_no_vector(quick):
    assert quick.reader.vocabulary == (UNKNOWN, "batch_norm", "conv2d", "linear", "relu")
    unknown = [Operation("sigmoid", [(8, 64)])]
    assert np.isfinite(quick.factors(unknown, A30)[0]).all()


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
