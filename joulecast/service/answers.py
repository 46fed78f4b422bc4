"""Answers: checks the questions of clients and answers them with the library, in the threads of the workers."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

from ..api import explain, predict_operations, prepare
from ..errors import InputError, JoulecastError, MissingDependencyError, UnknownNameError, unknown_name
from ..extraction import named_network, network_of
from ..extraction.isolation import IsolatedExtraction, Limits
from ..generation.generate import predict_generation
from ..generation.known import KNOWN
from ..generation.parallel import split_count
from ..generation.prediction import GenerationPrediction
from ..hardware import GPU, gpus
from ..hardware.host import find_host, hosts
from ..operations.dropped import Dropped
from ..operations.inputs import Inputs, InputShape, shape_from_json, shape_to_json
from ..operations.network import Entry, Network
from ..predictors.explanation import Explanation
from ..predictors.networks.execution import Execution
from ..predictors.networks.prediction import Prediction
from ..predictors.networks.prepared import PreparedNetwork
from ..predictors.operation_predictions import OperationPredictions
from ..queries import Choices, Question, Sweep
from ..queries import best as best_of
from ..queries import sweep as sweep_of
from ..queries.clocks import MOST_CLOCKS
from ..queries.constraints import Constraints
from ..queries.objectives import Tariff
from ..rendering.tables import table_csv
from .caches import BoundedCache, network_bytes
from .problems import problem_of, too_large, too_long
from .questions import (
    BatchQuestion,
    BestQuestion,
    ExplainQuestion,
    ExtractQuestion,
    GenerateQuestion,
    OperationItem,
    OperationsQuestion,
    PredictQuestion,
    Run,
    Subject,
    SweepQuestion,
)
from .settings import Settings
from .validation import checked_gpu, checked_model, checked_predictor, checked_predictor_anywhere, with_next_step

Found = TypeVar("Found", Network, Entry)

_TRACING_BYTES = 4 << 30  # several times what building the largest models of the libraries takes
# An operation of this many FLOPs or bytes would take a GPU weeks, and its figures are too large to add up precisely.
_LARGEST_WORK = 1e21
_QUICK_OPERATIONS = 300
_PREPARED = 3  # memory of a network that is prepared for a GPU, relative to that of the network itself
_OF_A_CLOCK = {"clock_mhz", "composition", "strict", "tree"}
_MODELS = "/v1/models lists them; for any other model send its operations, as `joulecast extract --json` lists them"


@dataclass(frozen=True)
class BatchItem:
    """One item of a batch: a prediction, or the reason why there is none."""

    prediction: Prediction | None
    error: JoulecastError | None


class TracingNeededError(Exception):
    """The model has no template, so the question must be answered in the process that traces models."""


class Answers:
    """Answers questions, and caches the networks that were requested.

    Args:
        settings: Limits and options of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tracer: IsolatedExtraction | None = None
        self.networks: BoundedCache[str, Network] = BoundedCache(settings.cached_networks_bytes, network_bytes)
        self.known: BoundedCache[bytes, PreparedNetwork] = BoundedCache(
            settings.cached_predictions_bytes, lambda prepared: _PREPARED * network_bytes(prepared.network)
        )
        self.generation = ""
        """State of the zoo. When it changes, cached results of earlier predictors are no longer used."""

    def tracing(self, tracer: IsolatedExtraction) -> Answers:
        """A copy that shares the caches and traces models in another process, instead of raising TracingNeededError."""
        other = copy.copy(self)
        other._tracer = tracer
        return other

    def extract(self, question: ExtractQuestion) -> Network:
        """See `joulecast.extract`."""
        return self._network(question, question.precision, question.optimizer)

    def predict(self, question: PredictQuestion) -> Prediction:
        """See `joulecast.predict`."""
        gpu = checked_gpu(question.gpu)
        gpu.checked_clock_mhz(_clock(question.clock_mhz))
        return self._of_known(self._known(question, gpu), question)

    def predict_at_once(self, question: PredictQuestion) -> Prediction | None:
        """Answer as `predict` does if that takes about a millisecond, as for a small cached network; None otherwise."""
        known = self.known.get(self._key(question))
        if known is None or len(known.network) > _QUICK_OPERATIONS:
            return None
        return self._of_known(known, question)

    def _of_known(self, known: PreparedNetwork, question: PredictQuestion) -> Prediction:
        return known.at(_clock(question.clock_mhz), composition=question.composition, strict=question.strict)

    def _key(self, question: PredictQuestion) -> bytes:
        # Stored only if the predictors are still those of the start: others must not be mixed in.
        text = self.generation + question.model_dump_json(exclude=_OF_A_CLOCK)
        return hashlib.sha256(text.encode()).digest()

    def _known(self, question: PredictQuestion, gpu: GPU) -> PreparedNetwork:
        key = self._key(question)
        known = self.known.get(key)
        if known is None:
            gpu.checked_power_limit_w(question.power_limit_w)
            network = self._network(question, question.precision)
            predictor = checked_predictor(question.predictor, gpu, network.mode)
            known = prepare(network, gpu, question.power_limit_w, predictor, _execution(question))
            self.known.put(key, known)
        return known

    def predict_operations(self, question: OperationsQuestion) -> OperationPredictions:
        """See `joulecast.predict_operations`."""
        self._refuse_many(len(question.operations))
        gpu = checked_gpu(question.gpu)
        predictor = checked_predictor(question.predictor, gpu, question.operations[0].mode)
        operations = [_entry(item).operation for item in question.operations]
        return predict_operations(
            operations, gpu, _clock(question.clock_mhz), predictor, power_limit_w=question.power_limit_w
        )

    def generate(self, question: GenerateQuestion) -> GenerationPrediction:
        """See `joulecast.predict_generation`; models are those whose parts are known without torch."""
        if question.model not in KNOWN:
            raise unknown_name("language model", question.model, KNOWN, hint="the library takes configurations, too")
        if question.engine == "transformers":
            raise InputError(
                "a service predicts engines with fused kernels",
                given=question.engine,
                allowed="vllm, sglang or tensorrt_llm",
                hint="for eager steps ask /v1/predict, with a cache_length",
            )
        _, name = split_count(question.gpu)
        checked_predictor(question.predictor, checked_gpu(name), "inference")
        given = question.model_dump(exclude={"clock_mhz"})
        return predict_generation(given.pop("model"), given.pop("gpu"), clock=_clock(question.clock_mhz), **given)

    def explain(self, question: ExplainQuestion) -> Explanation:
        """See `joulecast.explain`."""
        gpu = checked_gpu(question.gpu)
        operation = _entry(question.operation).operation
        predictor = checked_predictor(question.predictor, gpu, operation.mode)
        return explain(operation, gpu, _clock(question.clock_mhz), predictor)

    def predict_batch(self, question: BatchQuestion) -> list[BatchItem]:
        """Predict each item of a batch independently: an item that is refused does not affect the others."""
        if len(question.requests) > self._settings.max_batch:
            raise too_large("the batch has too many requests", len(question.requests), self._settings.max_batch)
        items: list[BatchItem] = []
        deadline_s = time.monotonic() + self._settings.max_seconds
        for request in question.requests:
            if time.monotonic() > deadline_s:
                # The client no longer waits for the answer.
                raise too_long(self._settings.max_seconds)
            try:
                items.append(BatchItem(self.predict(request), None))
            except JoulecastError as error:
                items.append(BatchItem(None, error))
        return items

    def sweep(self, question: SweepQuestion) -> Sweep:
        """See `joulecast.sweep`."""
        return sweep_of(*self._comparison(question))

    def best(self, question: BestQuestion) -> Choices:
        """See `joulecast.best`."""
        constraints = Constraints(question.max_time_s, question.max_power_w)
        return best_of(*self._comparison(question), constraints)

    def _comparison(self, question: SweepQuestion) -> tuple[Question, str, Tariff]:
        """The choices to compare, the objective, and the prices."""
        chosen = None if question.gpus is None else list(map(checked_gpu, question.gpus))
        precisions = [question.precision] if isinstance(question.precision, str) else question.precision
        clocks = question.clocks_mhz
        per_gpu = MOST_CLOCKS if clocks is None else len(clocks)
        batches = len(question.batch_sizes) if question.batch_sizes else 1
        count = len(chosen or gpus()) * per_gpu * len(precisions) * batches
        if count > self._settings.max_choices:
            raise too_large("there are too many choices to compare", count, self._settings.max_choices)
        price = question.price_per_hour
        tariff = Tariff.of(
            {checked_gpu(name).name: each for name, each in price.items()} if isinstance(price, dict) else price,
            question.price_per_kwh,
            question.carbon,
        )
        asked = Question.of(
            question.model if question.operations is None else self._listed(question, question.operations, "default"),
            shape_from_json(question.input_shape),
            gpus=chosen,
            clocks=None if clocks is None else [_clock(clock) or clock for clock in clocks],
            mode=question.mode,
            precision=question.precision,
            batch_sizes=question.batch_sizes,
            cache_length=question.cache_length,
            power_limit_w=question.power_limit_w,
            predictor=checked_predictor_anywhere(question.predictor),
            execution=_execution(question),
            extract=self._extract,
            assume=question.assume,
            model_options=question.model_options,
        )
        return asked, question.objective, tariff

    def _network(self, subject: Subject, precision: str, optimizer: str | None = None) -> Network:
        if subject.operations is not None:
            return self._listed(subject, subject.operations, precision)
        return self._extract(
            str(subject.model),  # a question has either operations or a model, never both
            shape_from_json(subject.input_shape),
            mode=subject.mode,
            precision=precision,
            cache_length=subject.cache_length,
            optimizer=optimizer,
            assume=subject.assume,
            model_options=subject.model_options,
        )

    def _extract(self, model: str | Network, input_shape: InputShape | None, **options: Any) -> Network:
        """The operations of a model by name, from the cache where they were requested before."""
        if isinstance(model, Network):
            return network_of(model, None, mode=options["mode"], precision=options["precision"])
        key = json.dumps([model, shape_to_json(input_shape), options], sort_keys=True)
        known = self.networks.get(key)
        if known is None:
            known = self._named(checked_model(model), input_shape, options)
            self._refuse_many(len(known))
            self.networks.put(key, known)
        return known

    def _named(self, model: str, input_shape: InputShape | None, options: dict[str, Any]) -> Network:
        try:
            try:
                return _refusing_overflow(lambda: named_network(model, input_shape, **options, may_trace=False))
            except MissingDependencyError:
                if not self._settings.extraction or find_spec("torch") is None:
                    raise
            tracer = self._tracer
            if tracer is None:
                raise TracingNeededError
            question = {"name": model, "inputs": Inputs.of(input_shape).to_list(), "whitelist": None, **options}
            limits = Limits(_TRACING_BYTES, self._settings.max_seconds)
            return _refusing_overflow(lambda: tracer.network(question, limits))
        except UnknownNameError as error:
            if error.what != "unknown model":
                raise
            raise with_next_step(error, _MODELS) from error

    def _listed(self, subject: Subject, items: list[OperationItem], precision: str) -> Network:
        for name in ("cache_length", "assume", "model_options"):
            if getattr(subject, name) is not None:
                raise InputError(
                    "operations have shapes of their own", given=f"{name} together with operations", hint="omit it"
                )
        self._refuse_many(len(items))
        merged: dict[Any, Entry] = {}
        for item in items:
            entry = _entry(item)
            merged[entry.operation] = merged[entry.operation].plus(entry) if entry.operation in merged else entry
        network = Network(
            tuple(merged.values()),
            name=subject.name or "network",
            input_shape=shape_from_json(subject.input_shape),
            mode=items[0].mode,
            dropped=tuple(Dropped.from_dict(item.model_dump()) for item in subject.dropped or ()),
            assumptions=tuple(subject.assumptions),
        )
        return network_of(network, None, mode=subject.mode, precision=precision)

    def _refuse_many(self, operations: int) -> None:
        if operations > self._settings.max_operations:
            raise too_large("there are too many operations", operations, self._settings.max_operations)


def _clock(clock_mhz: float | None) -> float | None:
    """The clock as a user would write it, because errors repeat it: 900, not 900.0."""
    return int(clock_mhz) if clock_mhz is not None and clock_mhz.is_integer() else clock_mhz


def _execution(question: Run) -> Execution:
    """How the job is run. A text is the name of a host, and never the path of a profile.

    Raises:
        UnknownNameError, InputError: There is no such execution or host.
    """
    wanted = question.host
    if isinstance(wanted, str) and wanted not in hosts():
        raise unknown_name("host", wanted, hosts(), hint="or a factor such as 0.5")
    return Execution.of(question.execution, find_host(wanted))


def _entry(item: OperationItem) -> Entry:
    return _refusing_overflow(lambda: Entry.from_dict(item.model_dump()))


def _refusing_overflow(function: Callable[[], Found]) -> Found:
    """Call a function, and turn overflows into an InputError: sizes may be valid singly but impossible together."""
    try:
        found = function()
        for entry in found if isinstance(found, Network) else (found,):
            _refuse_impossible(entry)
    except (OverflowError, ZeroDivisionError) as error:
        raise InputError("these sizes are impossible together", given=str(error)) from error
    return found


def _refuse_impossible(entry: Entry) -> None:
    operation = entry.operation
    if max(operation.flops, operation.bytes_read, operation.bytes_written) * entry.count > _LARGEST_WORK:
        raise InputError(
            "an operation is impossibly large",
            given=repr(operation)[:200],
            allowed=f"up to {_LARGEST_WORK:.0e} FLOPs and bytes",
        )


def batch_json(items: list[BatchItem], details: bool) -> dict[str, Any]:
    """A batch as plain lists and dictionaries. An item that was refused holds its problem instead of a prediction."""
    return {"results": [_item_json(item, details) for item in items]}


def _item_json(item: BatchItem, details: bool) -> dict[str, Any]:
    prediction = None if item.prediction is None else item.prediction.to_dict(details=details)
    return {"prediction": prediction, "problem": None if item.error is None else problem_of(item.error)}


def batch_csv(items: list[BatchItem]) -> str:
    """A batch as CSV, one item per line. The last column says why an item is empty."""
    header = ["network", "mode", "gpu", "clock_mhz", "predictor", "time_s", "power_w", "energy_j", "edp_js"]
    header += ["uncovered_share"]
    rows = [
        [getattr(item.prediction, name, None) for name in header]
        + [None if item.error is None else " ".join(str(item.error).split())]
        for item in items
    ]
    return table_csv([*header, "problem"], rows)
