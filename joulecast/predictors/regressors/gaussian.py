"""A Gaussian process with a length scale for every input, fitted to the posterior, evaluated with numpy alone.

Between measured operations its errors are far smaller than those of trees, which are constant on boxes of the inputs.
Far from all measured operations it predicts the mean, so it also returns how close the nearest one is.
Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), chapters 2 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError, damaged_entry, needing, with_extra
from ..formats.arrays import arrays_to_bytes, known_arrays

Matrix = NDArray[np.float64]

_MOST_POINTS = 1 << 16
_ROWS_AT_ONCE = 128  # Rows of a block of correlations, so that the block stays in the processor's cache.
# Rows of one matrix product, always the same number. BLAS adds numbers in another order for another number of rows, and
# for rows at the end of a large product, but no bit of a row's value may depend on the other rows.
_ROWS_ALIKE = 8
_SUBSAMPLE = 400  # Measurements that length scales are fitted to; the process itself uses all measurements.
_STEPS = 60
# Priors of length scales (a few standard deviations of an input) and of noise (a hundredth of the variance).
_LOG_LENGTH, _LOG_LENGTH_SPREAD = np.log(4.0), 1.0
_LOG_NOISE, _LOG_NOISE_SPREAD = np.log(0.01), 1.5
_JITTER = 1e-6
_LEAST_SPREAD = 1e-9


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted process: Matern 5/2 between an input and the points that were measured.

    Args:
        shift: Subtracted from each input, shape (columns,).
        scale: Factor on each shifted input, shape (columns,); 0 for an input that never varied.
        points: Measured inputs, shifted and scaled, shape (points, columns).
        weights: Weight of the correlation with each point, shape (points,).
        mean: Value far from all points.

    Raises:
        ZooError: Shapes that do not match, or numbers that are not finite.
    """

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]
    points: NDArray[np.float32]
    weights: NDArray[np.float32]
    mean: float
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        count = len(self.weights)
        shapes = [array.shape for array in (self.shift, self.scale, self.points)]
        columns = len(self.shift)
        if not 0 < count <= _MOST_POINTS or shapes != [(columns,), (columns,), (count, columns)]:
            raise _refused("the shapes of its arrays do not match", shapes)
        if not all(np.isfinite(a).all() for a in (self.shift, self.scale, self.points, self.weights, self.mean)):
            raise _refused("some of its numbers are not finite", None)

    @property
    def columns(self) -> int:
        """Number of inputs."""
        return len(self.shift)

    def __call__(self, inputs: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
        """Predicted values and closeness, shape (operations,) each.

        Closeness is the correlation with the nearest measured point: 1 at a point, and 0 far from all points.
        """
        values, closeness = np.empty(len(inputs)), np.empty(len(inputs))
        norms, points = self._norms, self._columns
        padded = -(-min(len(inputs), _ROWS_AT_ONCE) // _ROWS_ALIKE) * _ROWS_ALIKE
        # These arrays are reused for every block, because allocating them takes longer than the arithmetic.
        squares, roots = np.empty((2, padded, len(norms)), np.float32)
        block = np.zeros((padded, self.columns), np.float32)
        for start in range(0, len(inputs), padded):
            some = inputs[start : start + padded]
            count = len(some)
            block[:count] = (some - self.shift) * self.scale
            stacked = (-2 * block).reshape(-1, _ROWS_ALIKE, self.columns)
            np.matmul(stacked, points, out=squares.reshape(-1, _ROWS_ALIKE, len(norms)))
            squares += norms
            squares += np.einsum("ij,ij->i", block, block)[:, None]
            _to_matern(squares, roots)
            values[start : start + count] = (squares @ self.weights)[:count]
            closeness[start : start + count] = squares.max(axis=1)[:count]
        return values + self.mean, np.clip(closeness, 0.0, 1.0)

    @cached_property
    def _norms(self) -> NDArray[np.float32]:
        """Squared distance of each point from zero."""
        norms: NDArray[np.float32] = np.einsum("ij,ij->i", self.points, self.points)
        return norms

    @cached_property
    def _columns(self) -> NDArray[np.float32]:
        """The points as columns, the layout in which a matrix product is quickest."""
        return np.ascontiguousarray(self.points.T)

    def to_bytes(self) -> bytes:
        """The process as arrays in the safetensors format."""
        arrays = {"shift": self.shift, "scale": self.scale, "points": self.points, "weights": self.weights}
        return arrays_to_bytes(arrays, {"kind": "gaussian", "mean": float(self.mean).hex()})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote. Raises ZooError: the bytes are damaged, or are not a Gaussian process."""
        dimensions = {"shift": 1, "scale": 1, "points": 2, "weights": 1}
        known = {name: ("float32", dimension) for name, dimension in dimensions.items()}
        arrays, facts = known_arrays(data, "gaussian", "a stored Gaussian process", known)
        try:
            mean = float.fromhex(facts["mean"])
        except (KeyError, ValueError, OverflowError) as error:
            raise _refused("its mean is missing or no number", error) from error
        return cls(arrays["shift"], arrays["scale"], arrays["points"], arrays["weights"], mean)


def _refused(reason: str, given: object) -> ZooError:
    allowed = "shift, scale, points and weights in fp32"
    return damaged_entry(f"a stored Gaussian process is damaged: {reason}", given, allowed)


def _to_matern(squares: NDArray[np.float32], root: NDArray[np.float32]) -> None:
    """Turn squared distances into Matern 5/2 correlations in place; `root`, of the same shape, is overwritten."""
    nothing = np.zeros(squares.shape[1], np.float32)  # np.maximum takes three times as long with a scalar zero.
    squares *= 5
    np.maximum(squares, nothing, out=squares)  # Rounding can put a point at a tiny negative distance from itself.
    np.sqrt(squares, out=root)
    squares *= np.float32(1 / 3)
    squares += root
    squares += 1
    np.negative(root, out=root)
    np.exp(root, out=root)
    squares *= root


def fit_gaussian(inputs: NDArray[Any], targets: Matrix, seed: int = 0) -> GaussianProcess:
    """Fit a process.

    Inputs have the shape (measurements, columns), targets (measurements,). Raises MissingDependencyError: scipy is not
    installed.
    """
    with needing("training needs scipy", with_extra("train")):
        from scipy.linalg import cho_factor, cho_solve
        from scipy.optimize import minimize
    matrix = np.asarray(inputs, dtype=float)
    spread = matrix.std(axis=0)
    varies = spread > _LEAST_SPREAD
    shift = matrix.mean(axis=0)
    standard = ((matrix - shift) / np.where(varies, spread, 1.0))[:, varies]
    mean, deviation = float(targets.mean()), float(max(targets.std(), _LEAST_SPREAD))
    wanted = (targets - mean) / deviation
    some = np.random.default_rng(seed).permutation(len(standard))[:_SUBSAMPLE]
    columns = standard.shape[1]
    posterior: list[float] = []

    def note(intermediate_result: Any) -> None:
        posterior.append(float(intermediate_result.fun))

    found = minimize(
        _likelihood(standard[some], wanted[some]),
        np.r_[np.full(columns, _LOG_LENGTH), 0.0, _LOG_NOISE],
        jac=True,
        method="L-BFGS-B",
        bounds=[(np.log(0.05), np.log(200.0))] * columns + [(-4.0, 6.0), (np.log(1e-5), 0.0)],
        options={"maxiter": _STEPS},
        callback=note,
    ).x
    lengths, variance, noise = np.exp(found[:columns]), np.exp(found[columns]), np.exp(found[columns + 1])
    points = standard / lengths
    covariance = variance * _correlation(_squares(points))[0]
    covariance[np.diag_indices_from(covariance)] += noise + _JITTER
    weights = cho_solve(cho_factor(covariance, lower=True), wanted)
    scale = np.zeros(matrix.shape[1])
    scale[varies] = 1 / (spread[varies] * lengths)
    return GaussianProcess(
        shift=shift.astype(np.float32),
        scale=scale.astype(np.float32),
        points=((matrix - shift) * scale).astype(np.float32),
        weights=(weights * variance * deviation).astype(np.float32),
        mean=mean,
        curves={"negative_log_posterior": posterior},
    )


def _squares(points: Matrix) -> Matrix:
    norms = (points**2).sum(axis=1)
    squares: Matrix = np.maximum(norms[:, None] + norms[None, :] - 2 * points @ points.T, 0.0)
    return squares


def _correlation(squares: Matrix) -> tuple[Matrix, Matrix]:
    """Matern 5/2 correlations of squared distances, and their derivatives with respect to the squared distances."""
    r = np.sqrt(5 * squares)
    decay = np.exp(-r)
    return (1 + r + r * r / 3) * decay, -(5 / 6) * (1 + r) * decay


def _likelihood(standard: Matrix, wanted: Matrix) -> Callable[[Matrix], tuple[float, Matrix]]:
    """The negative log posterior as a function of the logarithms of lengths, variance and noise, with its gradient."""
    from scipy.linalg import LinAlgError, cho_solve, cholesky, lapack

    columns, count = standard.shape[1], len(standard)
    centre = np.r_[np.full(columns, _LOG_LENGTH), 0.0, _LOG_NOISE]
    precision = np.r_[np.full(columns, _LOG_LENGTH_SPREAD**-2), 0.0, _LOG_NOISE_SPREAD**-2]

    def posterior(logs: Matrix) -> tuple[float, Matrix]:
        points = standard / np.exp(logs[:columns])
        variance, noise = np.exp(logs[columns]), np.exp(logs[columns + 1])
        correlation, slope = _correlation(_squares(points))
        covariance = variance * correlation
        covariance[np.diag_indices(count)] += noise + _JITTER
        try:
            factor = cholesky(covariance, lower=True)
        except LinAlgError:
            return 1e10, np.zeros_like(logs)
        solved = cho_solve((factor, True), wanted)
        inverse = np.tril(lapack.dpotri(factor, lower=1)[0])
        inverse = inverse + np.tril(inverse, -1).T
        # Rasmussen and Williams, equation 5.9. Squared distances are sums over inputs, so one matrix product gives the
        # derivatives with respect to all length scales.
        gap = np.outer(solved, solved) - inverse
        pull = gap * variance * slope
        by_lengths = -2 * ((pull.sum(axis=1)[:, None] * points**2).sum(axis=0) - ((pull @ points) * points).sum(axis=0))
        gradient = np.r_[by_lengths, 0.5 * (gap * variance * correlation).sum(), 0.5 * np.trace(gap) * noise]
        away = logs - centre
        fit = -0.5 * wanted @ solved - np.log(np.diag(factor)).sum() - 0.5 * (precision * away**2).sum()
        return float(-fit), precision * away - gradient

    return posterior
