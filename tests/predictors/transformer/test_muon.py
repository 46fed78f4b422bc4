"""Muon: what a step does to matrices."""

import pytest

torch = pytest.importorskip("torch")

from joulecast.predictors.transformer.fit import Muon, orthogonalized  # noqa: E402


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
