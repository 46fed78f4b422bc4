"""Public functions for single operations: predict_operations and explain."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..hardware import GPU, find_gpu
from ..operations.columns import Columns, is_table, operations_of
from ..operations.operation import Operation
from ..operations.operation_list import checked_operations, mode_of
from ..predictors.board.calibrated import CalibratedPredictor
from ..predictors.board.profile import Calibrated, find_profile
from ..predictors.explanation import Explanation, explain_operation
from ..predictors.networks.composition import Execution
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.variants import refuse_precisions
from ..zoo import find_background, find_predictor


def predict_operations(
    operations: Iterable[Operation] | Columns,
    gpu: str | GPU,
    clock: float | None = None,
    predictor: str | Path | None = None,
    *,
    power_limit_w: float | None = None,
    calibration: Calibrated | None = None,
) -> OperationPredictions:
    """Predict single operations, each running alone in a loop.

    Args:
        operations: Operations of one mode, "inference" or "training". Or a table of pandas, polars or Arrow, or a
            dictionary of columns, with those that `to_frame` writes of operations: kind, input_shapes, attributes,
            precision and mode. Operations that several rows share are predicted once.
        gpu: Name or alias from the catalogue.
        clock: Graphics clock in MHz; None for the GPU's default.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        power_limit_w: Power cap in watts; None for the board's default.
        calibration: What was measured on the board; see `predict`.

    Returns:
        Arrays with one value per operation or row, in their order; NaN where an operation is not covered.

    Raises:
        UnknownNameError, InputError, ZooError: See `predict`.
    """
    if is_table(operations):
        different, places = operations_of(operations)
        predictions = predict_operations(
            different, gpu, clock, predictor, power_limit_w=power_limit_w, calibration=calibration
        )
        return predictions.take(places, [different[place] for place in places.tolist()])
    listed = checked_operations(operations)
    mode = mode_of(listed)
    board = find_gpu(gpu)
    refuse_precisions(board, listed)
    run = find_predictor(board, mode, predictor).under(Execution(profile=find_profile(calibration)))
    return run.operations.predict(listed, clock, power_limit_w)


def explain(
    operation: Operation,
    gpu: str | GPU,
    clock: float | None = None,
    predictor: str | Path | None = None,
    *,
    calibration: Calibrated | None = None,
) -> Explanation:
    """Explain why an operation costs what it costs on a GPU.

    Args:
        operation: The operation; in mode "training" its backward is included.
        gpu: Name or alias from the catalogue.
        clock: Graphics clock in MHz; None for the GPU's default.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default. The
            predictor "xgboost" also says how much each input contributed, if xgboost is installed.
        calibration: What was measured on the board; see `predict`.

    Returns:
        What bounds the operation, with the times of each bound; the most similar measured operations; the interval of
        the prediction.

    Raises:
        UnknownNameError, InputError, ZooError: See `predict`.
        MissingDependencyError: The predictor is boosted trees, and xgboost is not installed.

    Examples:
        >>> explain(Operation("relu", [(32, 64, 56, 56)]), "A30").bound_by
        'memory'
    """
    (operation,) = checked_operations([operation])
    board = find_gpu(gpu)
    refuse_precisions(board, [operation])
    run = Execution(profile=find_profile(calibration))
    network_predictor = find_predictor(board, operation.mode, predictor).under(run)
    background = find_background(board, operation.mode, predictor)
    known = network_predictor.operations
    of_board = (known.factors_of(operation), str(known.profile)) if isinstance(known, CalibratedPredictor) else None
    return explain_operation(
        known, network_predictor.name, operation, clock, background.operations, background.native, of_board
    )
