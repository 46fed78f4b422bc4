"""Client: the library's functions, answered by a service over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..hardware import GPU
from ..hardware.host import Host
from ..operations.columns import Columns, is_table, networks_of, operations_of
from ..operations.inputs import Inputs, InputShape, shape_to_json
from ..operations.network import Network
from ..operations.operation import Operation
from ..operations.operation_list import checked_operations, mode_of
from ..predictors import operation_html
from ..predictors.explanation import Explanation
from ..predictors.networks.many import NetworkPredictions
from ..predictors.networks.prediction import Prediction
from ..predictors.operation_predictions import OperationPredictions
from ..queries import Choices, Sweep
from .connection import LOCAL, Connection
from .generation import GenerationClient
from .pieces import pieces
from .requests import choices, gpu_name, one_of_many, run, subject, tariff

ServiceModel = str | Network | Sequence[tuple[Operation, int]]
"""Models that a service accepts: a name, a Network, or operations with their counts."""


SHOWN_BY = operation_html
"""Renders results in Jupyter. Importing the module registers the classes that it can render."""

Assume = Mapping[str, str | int]
"""Assumptions about unknown values of the input: {"experts": "uniform"}, {"boxes": 100, "box_side": 200}."""


class Client(GenerationClient):
    """Calls a service. Its methods have the arguments, results and errors of the library's functions.

    It can be used from several threads. Each request opens a connection of its own.

    Args:
        url: URL of the service, including the path prefix of a proxy if there is one.
        token: Token that the service accepts; None if it requires no token.
        timeout_s: Longest time in seconds to wait for a complete answer.

    Raises:
        InputError: The text is not the URL of a service.

    Examples:
        >>> client = Client("http://127.0.0.1:8000")
        >>> round(client.predict("resnet50", (32, 3, 224, 224), "A30").energy_j, 1)
        3.5
    """

    def __init__(self, url: str = LOCAL, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        self._connection = Connection(url, token, timeout_s)

    @property
    def url(self) -> str:
        """URL of the service."""
        return self._connection.url

    def predict(
        self,
        model: ServiceModel,
        input_shape: InputShape | None = None,
        gpu: str | GPU | None = None,
        clock: float | None = None,
        *,
        power_limit_w: float | None = None,
        mode: str = "inference",
        precision: str = "default",
        cache_length: int | None = None,
        optimizer: str | None = None,
        predictor: str | None = None,
        composition: str | None = None,
        strict: bool = False,
        execution: str = "eager",
        host: str | float | Path | Host | None = None,
        assume: Assume | None = None,
        model_options: Mapping[str, object] | None = None,
    ) -> Prediction:
        """See `joulecast.predict`.

        Raises:
            JoulecastError: The error that `joulecast.predict` would raise, or a ServiceError.
        """
        question = {
            **subject(model, input_shape, mode, cache_length, optimizer, assume, model_options),
            "precision": precision,
            "gpu": gpu_name(gpu),
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "predictor": predictor,
            "composition": composition,
            "strict": strict,
            **run(execution, host),
        }
        return self._connection.ask("predict", question, Prediction)

    def predict_many(
        self,
        networks: Iterable[ServiceModel] | Columns,
        gpu: str | GPU,
        clock: float | None = None,
        *,
        input_shape: InputShape | None = None,
        power_limit_w: float | None = None,
        mode: str = "inference",
        precision: str = "default",
        predictor: str | None = None,
        composition: str | None = None,
        execution: str = "eager",
        host: str | float | Path | Host | None = None,
    ) -> NetworkPredictions:
        """See `joulecast.predict_many`. Networks are sent in as many requests as they need.

        Raises:
            JoulecastError: The error that `joulecast.predict_many` would raise, or a ServiceError.
        """
        question = {
            "input_shape": None if input_shape is None else shape_to_json(Inputs.of(input_shape).shape),
            "gpu": gpu_name(gpu),
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "mode": mode,
            "precision": precision,
            "predictor": predictor,
            "composition": composition,
            **run(execution, host),
        }
        return NetworkPredictions.joined(
            [
                self._connection.ask("predict_many", {**question, "networks": piece}, NetworkPredictions)
                for piece in pieces(map(one_of_many, _listed(networks)))
            ]
        )

    def predict_operations(
        self,
        operations: Iterable[Operation] | Columns,
        gpu: str | GPU,
        clock: float | None = None,
        predictor: str | None = None,
        *,
        power_limit_w: float | None = None,
    ) -> OperationPredictions:
        """See `joulecast.predict_operations`.

        Raises:
            JoulecastError: The error that `joulecast.predict_operations` would raise, or a ServiceError.
        """
        if is_table(operations):
            different, places = operations_of(operations)
            found = self.predict_operations(different, gpu, clock, predictor, power_limit_w=power_limit_w)
            return found.take(places, [different[place] for place in places.tolist()])
        listed = checked_operations(operations)
        mode_of(listed)
        question = {
            "operations": [operation.to_dict() for operation in listed],
            "gpu": gpu_name(gpu),
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "predictor": predictor,
        }
        return self._connection.ask("predict_operations", question, OperationPredictions)

    def explain(
        self, operation: Operation, gpu: str | GPU, clock: float | None = None, predictor: str | None = None
    ) -> Explanation:
        """See `joulecast.explain`.

        Raises:
            JoulecastError: The error that `joulecast.explain` would raise, or a ServiceError.
        """
        question = {
            "operation": checked_operations([operation])[0].to_dict(),
            "gpu": gpu_name(gpu),
            "clock_mhz": clock,
            "predictor": predictor,
        }
        return self._connection.ask("explain", question, Explanation)

    def extract(
        self,
        model: ServiceModel,
        input_shape: InputShape | None = None,
        *,
        mode: str = "inference",
        precision: str = "default",
        cache_length: int | None = None,
        optimizer: str | None = None,
        assume: Assume | None = None,
        model_options: Mapping[str, object] | None = None,
    ) -> Network:
        """See `joulecast.extract`.

        Raises:
            JoulecastError: The error that `joulecast.extract` would raise, or a ServiceError.
        """
        about = subject(model, input_shape, mode, cache_length, optimizer, assume, model_options)
        return self._connection.ask("extract", {**about, "precision": precision}, Network)

    def best(
        self,
        model: ServiceModel,
        input_shape: InputShape | None = None,
        *,
        objective: str = "energy",
        gpus: str | GPU | Iterable[str | GPU] | None = None,
        clocks: float | Iterable[float] | None = None,
        power_limit_w: float | None = None,
        mode: str = "inference",
        precision: str | Sequence[str] = "default",
        batch_sizes: Iterable[int] | None = None,
        cache_length: int | None = None,
        optimizer: str | None = None,
        predictor: str | None = None,
        execution: str = "eager",
        host: str | float | Path | Host | None = None,
        max_time_s: float | None = None,
        max_power_w: float | None = None,
        price_per_hour: float | Mapping[str, float] | None = None,
        price_per_kwh: float | None = None,
        carbon: float | str | None = None,
        assume: Assume | None = None,
        model_options: Mapping[str, object] | None = None,
    ) -> Choices:
        """See `joulecast.best`.

        Raises:
            JoulecastError: The error that `joulecast.best` would raise, or a ServiceError.
        """
        question = {
            **subject(model, input_shape, mode, cache_length, optimizer, assume, model_options),
            "objective": objective,
            **choices(gpus, clocks, precision, batch_sizes),
            "power_limit_w": power_limit_w,
            "predictor": predictor,
            **run(execution, host),
            "max_time_s": max_time_s,
            "max_power_w": max_power_w,
            **tariff(price_per_hour, price_per_kwh, carbon),
        }
        return self._connection.ask("best", question, Choices)

    def sweep(
        self,
        model: ServiceModel,
        input_shape: InputShape | None = None,
        *,
        objective: str = "energy",
        gpus: str | GPU | Iterable[str | GPU] | None = None,
        clocks: float | Iterable[float] | None = None,
        power_limit_w: float | None = None,
        mode: str = "inference",
        precision: str | Sequence[str] = "default",
        batch_sizes: Iterable[int] | None = None,
        cache_length: int | None = None,
        optimizer: str | None = None,
        predictor: str | None = None,
        execution: str = "eager",
        host: str | float | Path | Host | None = None,
        price_per_hour: float | Mapping[str, float] | None = None,
        price_per_kwh: float | None = None,
        carbon: float | str | None = None,
        assume: Assume | None = None,
        model_options: Mapping[str, object] | None = None,
    ) -> Sweep:
        """See `joulecast.sweep`.

        Raises:
            JoulecastError: The error that `joulecast.sweep` would raise, or a ServiceError.
        """
        question = {
            **subject(model, input_shape, mode, cache_length, optimizer, assume, model_options),
            "objective": objective,
            **choices(gpus, clocks, precision, batch_sizes),
            "power_limit_w": power_limit_w,
            "predictor": predictor,
            **run(execution, host),
            **tariff(price_per_hour, price_per_kwh, carbon),
        }
        return self._connection.ask("sweep", question, Sweep)

    def gpus(self) -> list[dict[str, Any]]:
        """The catalogue of the service: one dictionary per GPU, as GET /v1/gpus lists it.

        Raises:
            ServiceError: The service does not answer, or refuses the request.
        """
        rows: list[dict[str, Any]] = self._connection.request("gpus", None, "application/json")["gpus"]
        return rows

    def version(self) -> dict[str, str]:
        """Versions of joulecast and Python that the service runs, and the state of its zoo.

        Raises:
            ServiceError: The service does not answer, or refuses the request.
        """
        found: dict[str, str] = self._connection.request("version", None, "application/json")
        return found


def _listed(networks: Iterable[ServiceModel] | Columns) -> Iterable[ServiceModel]:
    """Networks one after the other, also those of a table."""
    if not is_table(networks):
        return networks
    return (calls.network(place) for calls in networks_of(networks) for place in range(len(calls.names)))
