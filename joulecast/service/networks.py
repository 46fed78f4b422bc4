"""Networks that questions are about: models by name or in a file, and lists of operations."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ..errors import InputError, JoulecastError, MissingDependencyError, UnknownNameError, unknown_name
from ..extraction import Job, named_network, network_of_job
from ..extraction.isolation import IsolatedExtraction, Limits
from ..operations.entry import Dropped, Entry, merged
from ..operations.inputs import Inputs, parse_shapes, shape_from_json
from ..operations.network import Network, ParameterBytes
from ..progress import paced
from ..system.caches import OPERATION_BYTES, RESULTS
from .problems import refuse_over
from .schemas import Mode, OperationItem, Precision
from .settings import Settings
from .validation import checked_host, checked_model, with_next_step

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


Found = TypeVar("Found", Network, Entry)

_TRACING_BYTES = 4 << 30  # several times what building the largest models of the libraries takes
# An operation of this many FLOPs or bytes would take a GPU weeks, and its figures are too large to add up precisely.
_LARGEST_WORK = 1e21
_PATH_BYTES = 200  # of the path of a module, with its references in two lists
_MODELS = "/v1/models lists them; for any other model send its operations, as `joulecast extract --json` lists them"


class Networks:
    """Finds the networks of questions. Those of models by name are kept among all results of the library.

    Models without a template are traced one after the other in another process, which the thread of a question waits
    for.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.tracer = IsolatedExtraction()
        self._names: set[str] = set()  # of all models that can be traced; empty until the first one is

    def of(self, subject: Any, precision: str) -> Network:
        """The network that a question is about.

        Raises JoulecastError: there is no such model, or its operations are not valid.
        """
        return self.extract(self.job(subject, precision))

    def job(self, subject: Any, precision: str, **changed: Any) -> Job:
        """What a question asks, as the library takes it: names are checked, and a list of operations is a Network.

        `changed` are fields of the job that were checked already. Raises JoulecastError: there is no such host, or the
        operations are not valid.
        """
        given = vars(subject)
        if subject.operations is not None:
            changed["model"] = self.listed(subject, subject.operations)
        changed["input_shape"] = None if subject.operations else shape_from_json(subject.input_shape)
        return Job.of(given, precision=precision, host=checked_host(given.get("host")), **changed)

    def extract(self, job: Job) -> Network:
        """The operations of a model, from the cache where they were requested before."""
        if isinstance(job.model, Network):
            return network_of_job(job)
        inputs = None if job.input_shape is None else Inputs.of(job.input_shape)  # Without one, an error says which.
        key = self._settings.extraction, json.dumps([job.model, job.to_json(inputs)], sort_keys=True)
        network: Network | None = RESULTS.get(key)
        if network is None:
            network = self._named(replace(job, model=checked_model(job.model)))
            paths = sum(len(entry.module_paths) for entry in network)
            RESULTS.put(key, network, OPERATION_BYTES * len(network) + _PATH_BYTES * paths)
        return self._refuse_many(network)

    def _named(self, job: Job) -> Network:
        try:
            try:
                return _refusing_overflow(lambda: named_network(job, may_trace=False))
            except MissingDependencyError:
                if not self._settings.extraction or find_spec("torch") is None:
                    raise
            tracer, model = self.tracer, job.model
            if not self._names:
                self._names |= tracer.names()
            # Names that nobody has are refused without the process that traces, in which others would wait for them.
            if model.removeprefix("timm/").partition(".")[0] not in self._names:
                raise unknown_name("model", model, self._names, hint=_MODELS)
            question = {"name": model, **job.to_json(Inputs.of(job.input_shape))}
            limits = Limits(_TRACING_BYTES, self._settings.max_seconds)
            return _refusing_overflow(lambda: tracer.network(question, limits))
        except UnknownNameError as error:
            if error.what != "unknown model":
                raise
            raise with_next_step(error, _MODELS) from error

    def of_file(self, query: FileQuery, content: bytes) -> Network:
        """The network of a model in a file. Nothing in it is unpickled, and no code of it is run.

        Raises InputError: the file is of another kind, or holds no model. Raises MissingDependencyError: it needs a
        library that is not installed, or this service reads no files. Raises ExtractionError: the model cannot be
        looked into, or takes too long or too much memory.
        """
        if not self._settings.extraction:
            raise MissingDependencyError("this service reads no files", hint="send operations instead of the file")
        suffix = Path(query.name).suffix.lower()
        if suffix not in _SUFFIXES:
            raise InputError("this is no file of a model", given=repr(query.name), allowed=", ".join(_SUFFIXES))
        if suffix == ".json":
            _refuse_other_json(content)
        if suffix != ".onnx" and find_spec("torch") is None:
            hint = "send its operations instead"
            raise MissingDependencyError("this file can only be looked into with torch", hint=hint)
        stem = re.sub(r"\W+", "-", Path(query.name).stem, flags=re.ASCII).strip("-") or "model"
        with tempfile.TemporaryDirectory(prefix="joulecast-") as folder:
            path = Path(folder, f"{stem[:60]}{suffix}")
            path.write_bytes(content)
            inputs = None if query.input_shape is None else Inputs.of(parse_shapes(query.input_shape))
            question = {"file": str(path), **Job.of(vars(query), input_shape=None).to_json(inputs)}
            limits = Limits(_MEMORY_BYTES + _COPIES * len(content), self._settings.max_seconds)
            try:
                network = _refusing_overflow(lambda: self.tracer.network(question, limits))
            except JoulecastError as error:  # The client's name of the file stands for a path of this machine.
                parts = {name: getattr(error, name) for name in ("given", "allowed", "hint")}
                sent = {name: text and str(text).replace(str(path), query.name) for name, text in parts.items()}
                raise type(error)(error.what, **sent) from error
        return self._refuse_many(network)

    def listed(self, subject: Any, items: list[OperationItem]) -> Network:
        """The network of a list of operations, in their own mode and precision.

        Raises JoulecastError: the operations are not valid, or too many.
        """
        return Network(
            merged(map(entry_of, paced(items))),
            name=subject.name or "network",
            input_shape=shape_from_json(subject.input_shape),
            mode=items[0].mode,
            dropped=tuple(Dropped.from_dict(item.model_dump()) for item in subject.dropped or ()),
            assumptions=tuple(subject.assumptions),
            channels_last=subject.channels_last,
            parameter_bytes=subject.parameter_bytes and ParameterBytes(**subject.parameter_bytes.model_dump()),
        )

    def _refuse_many(self, network: Network) -> Network:
        """The network. Raises RefusalError: it has more operations than the service takes."""
        refuse_over("there are too many operations", len(network), self._settings.max_operations)
        return network


def entry_of(item: OperationItem) -> Entry:
    """An operation with its count, as a client sent it. Raises InputError: there is no such operation."""
    return _refusing_overflow(lambda: Entry.from_dict(item.model_dump()))


def _refusing_overflow(function: Callable[[], Found]) -> Found:
    """Call a function, and turn overflows into an InputError: sizes may be valid singly but impossible together."""
    try:
        result = function()
        for entry in result if isinstance(result, Network) else (result,):
            operation = entry.operation
            if max(operation.flops, operation.bytes_read, operation.bytes_written) * entry.count > _LARGEST_WORK:
                raise InputError(
                    "an operation is impossibly large",
                    given=repr(operation)[:200],
                    allowed=f"up to {_LARGEST_WORK:.0e} FLOPs and bytes",
                )
    except (OverflowError, ZeroDivisionError) as error:
        raise InputError("these sizes are impossible together", given=str(error), hint="use smaller sizes") from error
    return result


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
