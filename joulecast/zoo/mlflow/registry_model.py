"""A zoo entry as a model in MLflow: its files, its name and its signature."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...hardware import find_device
from ...operations.operation import Operation
from ..entries.cards import load_card
from ..entries.files import MANIFEST, library_versions, read_plain, sha256_of, stored_files
from ..entries.kernels_entry import not_by_itself

ENTRY = "entry"
"""Name of the artifact, and of its folder below `artifacts/`."""
ENTRY_SHA256 = "joulecast.entry_sha256"
"""Tag of a version: sha256 of the entry's manifest."""
OUTPUTS = ("time_s", "power_w", "energy_j", "device_time_s", "dynamic_energy_j")
"""Columns that the logged model returns, one row per operation."""

_MODEL_CODE = Path(__file__).with_name("mlflow_model.py")


def model_name(card: Mapping[str, Any]) -> str:
    """Name of the registered model. There is one per GPU and mode, and one for predictors for any GPU.

    Raises ZooError: the entry is of device times of kernels, which predicts nothing by itself.
    """
    if "kernels" in card:
        raise not_by_itself(card["name"])
    if "gpu" not in card:
        return "joulecast-any-gpu"
    return f"joulecast-{find_device(card['gpu']).slug}-{card['mode']}"


def entry_sha256(folder: Path) -> str:
    """The sha256 of an entry's manifest, which identifies the entry."""
    return sha256_of(read_plain(folder / MANIFEST))


def log_model(mlflow: Any, folder: Path) -> str:
    """Log an entry as a model of the active run, and return the model's URI. Raises ZooError: the entry is damaged."""
    card = load_card(folder)
    _, files = stored_files(folder)
    any_gpu = "gpu" not in card
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # MLflow warns of missing type hints, from which it would infer the signature, but the signature is given here.
        warnings.simplefilter("ignore", UserWarning)
        # Under a fixed name, whatever the folder is called, and only the files that belong to the entry.
        staged = Path(scratch) / ENTRY
        staged.mkdir()
        for name in (*files, MANIFEST):
            shutil.copyfile(folder / name, staged / name)
        info = mlflow.pyfunc.log_model(
            name=model_name(card),
            python_model=str(_MODEL_CODE),
            artifacts={ENTRY: str(staged)},
            signature=_signature(mlflow, any_gpu),
            input_example=_example(card, any_gpu),
            # Stated here, because MLflow would otherwise load the model in another process to find out.
            pip_requirements=[f"joulecast=={library_versions()['joulecast']}"],
            metadata={"entry_sha256": entry_sha256(folder)},
        )
        return str(info.model_uri)


def _signature(mlflow: Any, any_gpu: bool) -> Any:
    from mlflow.types.schema import ColSpec, Schema

    inputs = [ColSpec("string", "operation"), ColSpec("double", "clock_mhz", required=False)]
    if any_gpu:
        inputs.insert(1, ColSpec("string", "gpu"))
    return mlflow.models.ModelSignature(
        inputs=Schema(inputs), outputs=Schema([ColSpec("double", name) for name in OUTPUTS])
    )


def _example(card: Mapping[str, Any], any_gpu: bool) -> Any:
    import pandas as pd

    mode = "inference" if any_gpu else card["mode"]
    operations = [Operation("relu", [(32, channels, 56, 56)], mode=mode) for channels in (64, 256)]
    columns = {"operation": [json.dumps(operation.to_dict()) for operation in operations]}
    if any_gpu:
        columns["gpu"] = ["NVIDIA A30", "NVIDIA A30"]
    return pd.DataFrame(columns)
