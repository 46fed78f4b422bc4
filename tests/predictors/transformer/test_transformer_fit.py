"""What a transformer learns: variants, the same weights again, laws of operations, too little data."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_gpu, simulated_operations

from joulecast.errors import DatasetError
from joulecast.predictors.fitting.fit import fit_on_all
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.transformer.encoder import shapes, sinusoids

torch = pytest.importorskip("torch")

from small_transformers import (  # noqa: E402
    A30,
    QUICK,
    T4,
    TINY,
    VARIANTS,
    arrays,
    device_s,
    in_torch,
    quick,
    random_encoder,
    rows_of,
)

from joulecast.predictors.transformer.fit import Muon, fit_transformer, orthogonalized  # noqa: E402


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_variants(settings, dataset):
    recipe = replace(QUICK, **settings)
    encoder = fit_transformer([dataset], rows_of(simulated_operations()), recipe).encoder
    assert encoder(*arrays(2, 3)).shape == (2, 3)
    assert {name: each.shape for name, each in encoder.weights.items()} == shapes(recipe, 5)
    assert any("over_kinds" in name for name in encoder.weights) == (settings.get("stacks") != "one")
    assert any("norms" in name for name in encoder.weights) == settings.get("layer_norm", False)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (1, 30), (3, 5)], ids=str)
def test_numpy_says_what_torch_says(settings, shape):
    encoder, given = random_encoder(**settings), arrays(*shape)
    assert np.allclose(encoder(*given), in_torch(encoder, *given), atol=1e-5)


def test_attention_and_normalization_by_hand():
    """Two tokens' scores halve at a distance of one of two; a normalized vector has mean 0 and deviation 1."""
    weighted, plain = random_encoder(), random_encoder(distance_weighting=False)
    two = np.ones((1, 2, 4), np.float32)
    assert plain.scores(two, two).tolist() == [[[2, 2], [2, 2]]]  # 4 / sqrt(4)
    assert weighted.scores(two, two).tolist() == [[[2, 1], [1, 2]]]
    normed = random_encoder(layer_norm=True)
    normed.weights |= {"n.weight": np.float32(1), "n.bias": np.float32(0)}
    found = normed._normalized("n", np.array([[1.0, 3.0, 5.0]]))
    assert found == pytest.approx(np.array([[-1, 0, 1]]) * 1.5**0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "sees"),
    [
        ({}, True),
        ({"distance_weighting": False}, False),
        ({"distance_weighting": False, "operation_vector": "kind"}, False),
        ({"distance_weighting": False, "operation_vector": "kind", "positional_encoding": True}, True),
    ],
    ids=str,
)
def test_an_operation_sees_where_others_stand_by_weighting_or_places(settings, sees):
    encoder, given = random_encoder(**settings), arrays(1, 3)
    turned = tuple(array[:, [0, 2, 1]] for array in given)
    first = [encoder(*each)[0, 0] for each in (given, turned)]
    assert np.allclose(*first, atol=1e-5) is not sees


def test_places_are_the_sinusoids_of_the_transformer():
    # Vaswani et al., section 3.5: sin and cos of place / 10000 ** (2 i / width).
    place, pair, width = 5, 3, 16
    angle = place / 10000 ** (2 * pair / width)
    assert sinusoids(6, width)[place, pair] == pytest.approx(np.sin(angle), abs=1e-6)
    assert sinusoids(6, width)[place, width // 2 + pair] == pytest.approx(np.cos(angle), abs=1e-6)


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


def test_too_little_to_learn_from(dataset):
    rows = rows_of(simulated_operations())
    with pytest.raises(DatasetError, match="too few"):
        fit_transformer([dataset], rows[:50], QUICK)


def test_a_transformer_has_its_losses_by_epoch():
    tiny = replace(QUICK, width=8, epochs=6, together=0.3)
    curves = fit_on_all([simulated_gpu("A30")], (), tiny).curves
    assert set(curves) == {f"transformer/loss_{how}" for how in ("alone", "together")}
    alone = np.array(curves["transformer/loss_alone"])
    assert len(alone) == 6
    assert np.nanmean(alone[-2:]) < np.nanmean(alone[:2])


# Muon: what a step does to matrices.


def test_orthogonalized():
    torch.manual_seed(0)
    for shape in ((3, 8, 8), (2, 24, 8), (2, 8, 24)):
        singular = torch.linalg.svdvals(orthogonalized(1e-3 * torch.randn(shape)))
        # Its iterations do not converge, but reach this band from any value that is no smaller than a hundredth.
        assert singular.median() > 0.65
        assert singular.max() < 1.25


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
