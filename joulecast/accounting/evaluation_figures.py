"""Draws an evaluation: correlations of runs across sampling periods, across lengths, and between equal runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from ..rendering.notebook import Picture, as_picture, drawn_into
from ..rendering.plots import CHART_STYLE, INK, pyplot, svg_of
from ..units import si
from .evaluation import PUBLISHED, Evaluation

_PALEST = 0.8  # Correlation of the palest colour; the lowest correlation, if that is smaller.


@as_picture.register(Evaluation)
def picture(evaluation: Evaluation) -> Picture:
    """The three matrices side by side.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    plt = pyplot()
    with plt.rc_context(CHART_STYLE):
        figure = _figure(plt, evaluation)
        drawn = svg_of(figure)
        plt.close(figure)
    return Picture(drawn)


@drawn_into.register(Evaluation)
def save(evaluation: Evaluation, path: Path) -> Path:
    """Draw the matrices into a file.

    Raises:
        InputError: The name does not end in .png or .svg, or its folder does not exist.
        MissingDependencyError: matplotlib is not installed.
    """
    if path.suffix.lower() not in (".png", ".svg") or not path.parent.is_dir():
        raise InputError(
            "the plot of correlations cannot be written to this path",
            given=str(path),
            allowed="a name that ends in .png or .svg, in a folder that exists",
            hint="create the folder, or choose another name",
        )
    if path.suffix.lower() == ".svg":
        path.write_text(picture(evaluation).svg, encoding="utf-8")
        return path
    plt = pyplot()
    with plt.rc_context(CHART_STYLE):
        figure = _figure(plt, evaluation)
        figure.savefig(path)
        plt.close(figure)
    return path


def _figure(plt: Any, evaluation: Evaluation) -> Any:
    panels = [
        (f"Sampling periods (ASSS; published {PUBLISHED['ASSS']})", evaluation.by_period,
         [si(period_s, "s") for period_s in evaluation.periods_s]),
        (f"Run lengths (ASSW; published {PUBLISHED['ASSW']})", evaluation.by_length,
         [si(length_s, "s") for length_s in evaluation.lengths_s]),
        ("Equal runs", evaluation.by_experiment, [str(i + 1) for i in range(evaluation.experiments)]),
    ]  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(13.0, 4.6), layout="constrained")
    known = np.concatenate([matrix[np.isfinite(matrix)] for _, matrix, _ in panels])
    least = min(_PALEST, float(known.min()))
    for axis, (title, matrix, names) in zip(axes, panels, strict=True):
        drawn = _matrix(axis, matrix, names, least)
        axis.set_title(title)
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="Pearson's correlation of the joules of modules")
    figure.suptitle(f"{evaluation.title}, {evaluation.power} power", x=0.01, ha="left", fontsize=11)
    return figure


def _matrix(axis: Any, matrix: FloatArray, names: Sequence[str], least: float) -> Any:
    drawn = axis.imshow(matrix, vmin=least, vmax=1.0, cmap="Blues")
    middle = (least + 1) / 2
    for row, column in np.ndindex(matrix.shape):
        value = float(matrix[row, column])
        text = "-" if np.isnan(value) else f"{value:.3f}"
        axis.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if value > middle else INK)
    axis.set_xticks(range(len(names)), names, rotation=45)
    axis.set_yticks(range(len(names)), names)
    axis.grid(visible=False)
    return drawn
