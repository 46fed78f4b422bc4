"""Files of models that clients send: their operations are listed in a process of its own, with limits."""

from __future__ import annotations

import json
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..errors import InputError, JoulecastError, MissingDependencyError
from ..extraction import Job
from ..extraction.isolation import IsolatedExtraction, Limits
from ..operations.inputs import Inputs, parse_shapes
from ..operations.network import Network
from .subjects import Mode, Precision

_SUFFIXES = (".onnx", ".pt2", ".json")
_MEMORY_BYTES = 1 << 30
_COPIES = 3  # An ONNX file contains its weights, and more than one copy of it is in memory.


class FileQuery(BaseModel):
    """Name of a file with a model, and how the model is extracted."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Name of the file; its ending says what it is: .onnx, .pt2, or .json for a configuration.",
        examples=["model.onnx"],
    )
    input_shape: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=16)] | None = (
        Field(None, description="Such as 8,128; needed by a configuration. For several inputs repeat it.")
    )
    mode: Mode = "inference"
    precision: Precision = "default"


def network_of_upload(query: FileQuery, content: bytes, tracer: IsolatedExtraction, seconds: float) -> Network:
    """List the operations of a model in a file. Nothing in it is unpickled, and no code of it is run.

    Args:
        query: Name of the file, and how its model is extracted.
        content: Bytes of the file.
        tracer: Process that reads files.
        seconds: Longest time that this may take.

    Raises:
        InputError: The file is of another kind, or holds no model.
        MissingDependencyError: The file needs a library that is not installed.
        ExtractionError: The model cannot be looked into, or takes too much time or memory.
    """
    suffix = Path(query.name).suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError("this is no file of a model", given=repr(query.name), allowed=", ".join(_SUFFIXES))
    if suffix == ".json":
        _refuse_other_json(content)
    if suffix != ".onnx" and find_spec("torch") is None:
        raise MissingDependencyError("this file can only be looked into with torch", hint="send its operations instead")
    stem = re.sub(r"\W+", "-", Path(query.name).stem, flags=re.ASCII).strip("-") or "model"
    with tempfile.TemporaryDirectory(prefix="joulecast-") as folder:
        path = Path(folder, f"{stem[:60]}{suffix}")
        path.write_bytes(content)
        inputs = None if query.input_shape is None else Inputs.of(parse_shapes(query.input_shape))
        question = {"file": str(path), **Job.of(vars(query), input_shape=None).to_json(inputs)}
        try:
            return tracer.network(question, Limits(_MEMORY_BYTES + _COPIES * len(content), seconds))
        except JoulecastError as error:
            raise _as_sent(error, str(path), query.name) from error


def _as_sent(error: JoulecastError, path: str, name: str) -> JoulecastError:
    """The error with the client's name of the file instead of a path of this machine."""

    def renamed(text: object) -> str | None:
        return None if text is None else str(text).replace(path, name)

    return type(error)(error.what, given=renamed(error.given), allowed=renamed(error.allowed), hint=renamed(error.hint))


def _refuse_other_json(content: bytes) -> None:
    try:
        configuration = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError("this file is not valid JSON", given=str(error)[:100], allowed="a config.json") from error
    if not isinstance(configuration, dict) or "model_type" not in configuration:
        raise InputError(
            "this file is no configuration of a model",
            given="no model_type",
            allowed="a config.json of transformers",
            hint="a list of operations goes to /v1/predict as it is",
        )
