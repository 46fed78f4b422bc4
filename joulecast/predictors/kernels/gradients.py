"""Linear layers that were not measured themselves, as products that were: those in training, and those in TF32.

Training a linear layer takes three products of the same number of FLOPs: the layer itself, the gradient of its input
and the gradient of its weights. Each of them is the product of a linear layer in inference.

Tensor cores multiply half as many TF32 as half-precision elements in a clock cycle, and read twice as many bytes for
each. So a product in TF32 takes the time of one in half precision with twice the reduction.
"""

from __future__ import annotations

from ...operations.operation import Operation


def kernels_of(operation: Operation) -> tuple[Operation, ...]:
    """The kernels that an operation consists of, as operations that may have been measured.

    The gradient of a bias, a sum over rows, is left out. The backward pass of an attention was not measured. It is
    predicted relative to its forward pass (`Family.with_backward`).

    Args:
        operation: Any operation.

    Returns:
        The products of a linear layer in training or in TF32, the forward pass of an attention; otherwise the operation
        itself.
    """
    if operation.kind not in ("linear", "attention") or operation.precision not in ("fp16", "bf16", "tf32"):
        return (operation,)
    if operation.kind == "attention":
        return (operation.replace(mode="inference"),)
    if operation.mode == "inference" and operation.precision != "tf32":
        return (operation,)
    columns, reduction = operation.attributes["out_features"], operation.input_shapes[0][-1]
    rows = operation.input_size // reduction
    sizes = [(rows, reduction, columns)]
    if operation.mode == "training":
        sizes += [(rows, columns, reduction), (columns, rows, reduction)]
    precision, wider = ("fp16", 2) if operation.precision == "tf32" else (operation.precision, 1)
    return tuple(
        Operation("linear", [[m, wider * k]], {"out_features": n, "bias": False}, precision=precision)
        for m, k, n in sizes
    )
