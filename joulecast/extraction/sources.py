"""From whatever a user gives as a model to its Network. Torch is imported only if a torch model has to be traced."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ExtractionError, InputError, MissingDependencyError, with_extra
from ..operations.inputs import Inputs, require_positive_integer, shape_text
from ..operations.network import Network
from ..operations.operation import Operation, require_mode, require_precision
from ..system.regular_files import MOST_JSON_BYTES, is_file, open_regular, read_json, refusing_damage
from .cache import recall, remember
from .job import ATTENTION, Job, refuse_optimizer
from .models.spelling import known_as, known_names
from .operators import WHITELIST
from .templates import answer, refusal, store

if TYPE_CHECKING:
    import torch

    Shape = Sequence[int] | torch.Tensor
    InputShape = Shape | Sequence[Shape] | Mapping[str, Shape] | Inputs
    Model = str | Path | torch.nn.Module | Network | Sequence[tuple[Operation, int]] | Any


_OF_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".gguf")


def network_of(model: Model, input_shape: InputShape | None, **options: Any) -> Network:
    """List the operations of a model; see `joulecast.extract` for the arguments, and `network_of_job` for errors."""
    return network_of_job(Job(model, input_shape, **options))


def network_of_job(job: Job) -> Network:
    """List the operations of the model of a job; see `joulecast.extract`.

    Raises UnknownNameError: there is no such model, mode or precision. Raises InputError: a shape, file or list is not
    valid. Raises ExtractionError: the forward raises, or depends on values of the input. Raises MissingDependencyError:
    the model needs a library that is not installed.
    """
    job, attention = _checked(job)
    model = job.model
    path = Path(model) if isinstance(model, str | Path) else None
    from_file = path is not None and (path.suffix in (".pt2", ".onnx", ".json") or is_file(path))
    if job.model_options and (from_file or not isinstance(model, str)):
        raise InputError(
            "options make a model that is given by name",
            given=f"{', '.join(job.model_options)} for a {type(model).__name__}",
            hint="build the model with them, and give it without options",
        )
    if job.lora is not None and path is None:
        raise InputError(
            "adapters are put into models that are given by name, or by their config.json",
            given=f"lora={job.lora} for a {type(model).__name__}",
            hint="put adapters into your module with peft, and give it without lora",
        )
    network = _in_memory(job) if path is None else _from_file(path, job) if from_file else _named(str(model), job)
    return network if attention is None else network.with_attention_by(attention)


def named_network(job: Job, *, may_trace: bool = True) -> Network:
    """List the operations of a named model. The name is never read as the path of a file.

    Raises what `network_of_job` does, and MissingDependencyError if neither the cache nor a template has the model, and
    it may not be traced with torch.
    """
    job, attention = _checked(job)
    network = _named(str(job.model), job, may_trace)
    return network if attention is None else network.with_attention_by(attention)


def _checked(job: Job) -> tuple[Job, str | None]:
    """A job without the library of attention among its assumptions, which does not depend on the model; and it."""
    require_mode(job.mode)
    require_precision(job.precision)
    if job.cache_length is not None:
        require_positive_integer("cache_length", job.cache_length)
    if not isinstance(job.assume, Mapping) or ATTENTION not in job.assume:
        return job, None
    others = {name: value for name, value in job.assume.items() if name != ATTENTION}
    return replace(job, assume=others or None), str(job.assume[ATTENTION])


def _in_memory(job: Job) -> Network:
    """The network of a model that is an object: listed operations, a module, a configuration or a program."""
    model = job.model
    if isinstance(model, Network):
        return _listed(model, job)
    # Neither a module nor a configuration can exist without its library, so this does not import any.
    torch_module, transformers = sys.modules.get("torch"), sys.modules.get("transformers")
    if torch_module is not None:
        from .models.transformers_models import from_config
        from .traced_models import traced

        if transformers is not None and isinstance(model, transformers.PretrainedConfig):
            model = from_config(model)
        if isinstance(model, torch_module.export.ExportedProgram):
            model = model.module()
        if isinstance(model, torch_module.nn.Module):
            return traced(model, Inputs.of(job.input_shape), job)
    if isinstance(model, Sequence):
        for item in model:
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Operation)):
                raise InputError(
                    "a list of operations holds pairs of Operation and count",
                    given=repr(item)[:200],
                    allowed='such as [(Operation("relu", [(8, 64)]), 3)]',
                )
        return _listed(Network.of(model), job)
    if isinstance(model, type):
        raise InputError(
            "this is a class, not a model", given=model.__name__, hint=f"give an instance: {model.__name__}(...)"
        )
    raise InputError(
        "this is not a model",
        given=type(model).__name__,
        allowed="a name, a torch.nn.Module, a configuration of transformers, a Network, a list of (Operation, count), "
        "or a file: network (JSON), config.json, .pt2, .onnx",
    )


def _listed(network: Network, job: Job) -> Network:
    """A network that was extracted before, in the mode and precision that are asked for.

    The default precision leaves that of each operation. Raises InputError: another shape is asked for, or an argument
    that only extraction can heed.
    """
    for name in ("cache_length", "optimizer", "operators", "assume"):
        if getattr(job, name) is not None:
            raise InputError(
                "a list of operations is complete",
                given=f"{name} together with operations",
                hint="omit it, or extract the model with it",
            )
    if job.input_shape is not None and network.input_shape is not None:
        asked, listed = Inputs.of(job.input_shape), Inputs.of(network.input_shape)
        if [item.shape for item in asked.all] != [item.shape for item in listed.all]:
            raise InputError(
                "a network has its input shape already",
                given=shape_text(asked.shape),
                allowed=shape_text(listed.shape),
                hint="leave the shape out, or extract the model again",
            )
    mode = network.mode if network.mode == "training" else job.mode
    if mode == network.mode and job.precision == "default":
        return network
    return network.replace(mode=mode, precision=None if job.precision == "default" else job.precision)


def network_of_file(job: Job) -> Network:
    """List the operations of the model in a file, in this process. The model of the job is the path of the file.

    A program of torch.export and an ONNX file have suffixes; a file with another suffix is read as a configuration.
    """
    path = Path(job.model)
    with refusing_damage("this file describes no model that can be", path):
        if path.suffix == ".onnx":
            from .files.onnx_graphs import load as network_of_graph

            return network_of_graph(path, job)
        from .models.transformers_models import from_config
        from .traced_models import traced

        if path.suffix == ".pt2":
            from .files.exported_programs import load

            program = load(path)
            return traced(program, program.inputs(job.input_shape), job, program.name)
        module = from_config(read_json(path, MOST_JSON_BYTES, "this file"))
        return traced(module, Inputs.of(job.input_shape), job)


def _from_file(path: Path, job: Job) -> Network:
    """Read a file in a separate process, unless it is a list of operations."""
    if path.suffix in _OF_WEIGHTS:
        raise InputError(
            "weights do not say what a model computes",
            given=str(path),
            allowed="a file: network (JSON), config.json, .pt2, .onnx",
            hint="give the model that they belong to: a name, FILE.py:NAME, or what torch.export.save wrote (.pt2)",
        )
    if path.suffix not in (".pt2", ".onnx"):
        content = read_json(path, MOST_JSON_BYTES, "this file")
        if not (isinstance(content, dict) and "model_type" in content and "operations" not in content):
            return _listed(Network.from_dict(content, name=path.stem), job)
    if path.suffix != ".onnx" and find_spec("torch") is None:
        raise _lacks_torch(str(path))
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
    inputs = None if job.input_shape is None else Inputs.of(job.input_shape)
    if job.operators is not None and path.suffix == ".pt2":
        # The user's own operators, and their conversions, exist in this process only.
        return network_of_file(replace(job, input_shape=inputs))
    from .isolation import SHARED, Limits

    # An ONNX file contains its weights, and more than one copy of it is in memory.
    limits = Limits(Limits.memory_bytes + 3 * size_bytes)
    return SHARED.network({"file": str(path.absolute()), **job.to_json(inputs)}, limits)


def _named(name: str, job: Job, may_trace: bool = True) -> Network:
    name = known_as(name)
    if job.input_shape is None and name in known_names():
        shape, model = _input_of(name), store.load(name)
        example = store.usual_shape(shape, {}) if model is None else model.example
        raise InputError(
            f"{name} needs the shape of its input",
            given="none",
            allowed=" x ".join(map(str, shape)),
            hint=f"give a shape such as {[*example]}",
        )
    if job.input_shape is None and not (may_trace and find_spec("torch")):
        raise refusal(name, job, known_names())
    inputs = Inputs.of(job.input_shape)
    job = replace(job, input_shape=inputs)
    refuse_optimizer(job.optimizer, job.mode)
    # Neither the cache nor templates cover the user's own operators, assumptions and model options.
    own = [*(job.operators or ()), *(job.assume or ()), *(job.model_options or ())]
    own += [each for each in ("autocast", "lora") if getattr(job, each) is not None]
    cached = job.whitelist is WHITELIST and not own
    key = [inputs.to_list(), job.mode, job.precision, job.cache_length, job.optimizer]
    if cached and (known := answer(name, job) or recall(name, key)) is not None:
        return known
    if not (may_trace and find_spec("torch")):
        listed = known_names()
        with_own = f"{name} with {', '.join(own)}"
        raise _lacks_torch(with_own) if own and name in listed else refusal(name, job, listed)
    from .models.named_models import build
    from .traced_models import traced

    operators_run: set[str] = set()
    module = build(name, job.model_options)
    try:
        network = traced(module, inputs, job, name, lambda recorder: operators_run.update(recorder.operators_run))
    except ExtractionError as error:
        if error.allowed is not None or name not in known_names():
            raise
        raise ExtractionError(
            error.what, given=error.given, allowed=" x ".join(map(str, _input_of(name))), hint=error.hint
        ) from error
    if cached:
        remember(network, name, key, operators_run)
    return network


def _input_of(name: str) -> tuple[int | str, ...]:
    """The shape of the main input of a model that is known by name, with names for its sizes."""
    from .models.language_models import BY_NAME

    return next(iter((store.load(name) or BY_NAME[name]).inputs.values()))


def _lacks_torch(model: str) -> MissingDependencyError:
    return MissingDependencyError(
        "this model can only be looked into with torch",
        given=model,
        hint=f"{with_extra('torch')}; or give a network saved as JSON",
    )
