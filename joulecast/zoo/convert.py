"""Entries of older formats as the newest: the same predictor, the same golden prediction."""

from __future__ import annotations

from pathlib import Path

from ..predictors.regressors.serving import regressor_file
from ..predictors.regressors.trees_onnx import trees_from_onnx
from .entries.files import FORMAT_VERSION, checked_files, predictor_of, write_files


def convert(folder: str | Path) -> bool:
    """Write an entry again in the newest format, in its place.

    Returns:
        Whether that was necessary.

    Raises:
        ZooError: The entry is damaged.
    """
    folder = Path(folder)
    manifest, files = checked_files(folder, ())
    if manifest["format_version"] == FORMAT_VERSION:
        return False
    new = {}
    for name, data in files.items():
        if name.endswith(".onnx"):
            new[regressor_file(name.removesuffix(".onnx"))] = trees_from_onnx(data).to_bytes()
        else:
            new[name] = data
    write_files(folder, new, manifest["golden"], predictor=predictor_of(manifest), libraries=manifest.get("libraries"))
    return True
