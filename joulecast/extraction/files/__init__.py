"""Models in files: `torch.export` programs and ONNX graphs. No code of a file is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...operations.inputs import Input, Inputs, shape_text


def fitted(
    name: str, sizes: Mapping[str, Sequence[int | None]], given: Any, *, verb: str = "has", hint: str | None = None
) -> dict[str, Input]:
    """The inputs of a model by their names in its file, whose sizes may be fixed; None stands for any size.

    Raises InputError: these are not its inputs, or have other sizes; `verb` and `hint` are parts of the message.
    """
    allowed = {key: " x ".join("any" if n is None else str(n) for n in shape) for key, shape in sizes.items()}
    wanted = Inputs.of(given)
    by_name = dict(wanted.named)
    if len(wanted.all) != len(sizes) or not by_name.keys() <= sizes.keys():
        every = ", ".join(f"{key} {shape}" for key, shape in allowed.items())
        raise InputError(f"{name} has other inputs", given=shape_text(wanted.shape), allowed=every)
    by_name.update(zip([key for key in sizes if key not in by_name], wanted.positional, strict=True))
    for key, item in by_name.items():
        if len(item.shape) != len(sizes[key]) or any(
            n not in (None, m) for n, m in zip(sizes[key], item.shape, strict=True)
        ):
            raise InputError(
                f"{name} {verb} other sizes of {key}", given=shape_text(item.shape), allowed=allowed[key], hint=hint
            )
    return {key: by_name[key] for key in sizes}
