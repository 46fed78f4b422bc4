"""Client: the library's functions, answered by a service over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .asking import choices, gpu_name, run, subject
from .errors import ERRORS_BY_PROBLEM, PROBLEM_PREFIX, InputError, JoulecastError, ServiceError
from .generation.prediction import GenerationPrediction
from .hardware import GPU, find_gpu
from .hardware.host import Host
from .operations.inputs import InputShape
from .operations.network import Network
from .operations.operation import Operation, checked_operations
from .predictors.explanation import Explanation
from .predictors.networks.prediction import Prediction
from .predictors.operation_predictions import OperationPredictions
from .queries import Choices, Sweep

_MOST_BYTES = 256 << 20  # of an answer; that of a batch with all its operations is ten times smaller
_LOCAL = "http://127.0.0.1:8000"

Answer = TypeVar("Answer")

ServiceModel = str | Network | Sequence[tuple[Operation, int]]
"""Models that a service accepts: a name, a Network, or operations with their counts."""


Assume = Mapping[str, str | int]
"""Assumptions about unknown values of the input: {"experts": "uniform"}, {"boxes": 100, "box_side": 200}."""


class Client:
    """Calls a service. Its methods have the arguments, results and errors of the library's functions.

    It can be used from several threads. Each request opens a connection of its own.

    Args:
        url: URL of the service, including the path prefix of a proxy if there is one.
        token: Token that the service accepts; None if it requires no token.
        timeout_s: Longest time in seconds to wait for a complete answer.

    Raises:
        InputError: The text is not the URL of a service.

    Example:
        >>> client = Client("http://127.0.0.1:8000")
        >>> round(client.predict("resnet50", (32, 3, 224, 224), "A30").energy_j, 1)
        3.6
    """

    def __init__(self, url: str = _LOCAL, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError("this is not the URL of a service", given=url, allowed=f"such as {_LOCAL}")
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s

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
            **subject(model, input_shape, mode, cache_length, assume, model_options),
            "precision": precision,
            "gpu": gpu_name(find_gpu(None) if gpu is None else gpu),
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "predictor": predictor,
            "composition": composition,
            "strict": strict,
            **run(execution, host),
        }
        return self._ask("predict", question, Prediction)

    def predict_generation(
        self,
        model: str,
        gpu: str | GPU,
        *,
        batch: int,
        prompt_tokens: int,
        output_tokens: int,
        precision: str = "bf16",
        engine: str = "vllm",
        tensor_parallel: int = 1,
        expert_parallel: int = 1,
        batching: str | None = None,
        clock: float | None = None,
        power_limit_w: float | None = None,
        cache_precision: str | None = None,
        predictor: str | None = None,
    ) -> GenerationPrediction:
        """See `joulecast.predict_generation`, for models that are known by name.

        Raises:
            JoulecastError: The error that `joulecast.predict_generation` would raise, or a ServiceError.
        """
        question = {
            "model": model,
            "gpu": gpu_name(gpu),
            "batch": batch,
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "precision": precision,
            "engine": engine,
            "tensor_parallel": tensor_parallel,
            "expert_parallel": expert_parallel,
            "batching": batching,
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "cache_precision": cache_precision,
            "predictor": predictor,
        }
        return self._ask("generate", question, GenerationPrediction)

    def predict_operations(
        self,
        operations: Iterable[Operation],
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
        listed = [operation.to_dict() for operation in checked_operations(operations)]
        if not listed:
            raise InputError("operations to predict share one mode", given="no operations")
        question = {
            "operations": listed,
            "gpu": gpu_name(gpu),
            "clock_mhz": clock,
            "power_limit_w": power_limit_w,
            "predictor": predictor,
        }
        return self._ask("predict_operations", question, OperationPredictions)

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
        return self._ask("explain", question, Explanation)

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
        about = subject(model, input_shape, mode, cache_length, assume, model_options)
        return self._ask("extract", {**about, "precision": precision, "optimizer": optimizer}, Network)

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
            **subject(model, input_shape, mode, cache_length, assume, model_options),
            "objective": objective,
            **choices(gpus, clocks, precision, batch_sizes),
            "power_limit_w": power_limit_w,
            "predictor": predictor,
            **run(execution, host),
            "max_time_s": max_time_s,
            "max_power_w": max_power_w,
            "price_per_hour": dict(price_per_hour) if isinstance(price_per_hour, Mapping) else price_per_hour,
            "price_per_kwh": price_per_kwh,
            "carbon": carbon,
        }
        return self._ask("best", question, Choices)

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
            **subject(model, input_shape, mode, cache_length, assume, model_options),
            "objective": objective,
            **choices(gpus, clocks, precision, batch_sizes),
            "power_limit_w": power_limit_w,
            "predictor": predictor,
            **run(execution, host),
            "price_per_hour": dict(price_per_hour) if isinstance(price_per_hour, Mapping) else price_per_hour,
            "price_per_kwh": price_per_kwh,
            "carbon": carbon,
        }
        return self._ask("sweep", question, Sweep)

    def gpus(self) -> list[dict[str, Any]]:
        """The catalogue of the service: one dictionary per GPU, as GET /v1/gpus lists it.

        Raises:
            ServiceError: The service does not answer, or refuses the request.
        """
        rows: list[dict[str, Any]] = self._request("gpus", None, "application/json")["gpus"]
        return rows

    def version(self) -> dict[str, str]:
        """Versions of joulecast and Python that the service runs, and the state of its zoo.

        Raises:
            ServiceError: The service does not answer, or refuses the request.
        """
        found: dict[str, str] = self._request("version", None, "application/json")
        return found

    def _ask(self, path: str, question: Mapping[str, Any], kind: type[Answer]) -> Answer:
        from . import wire

        given = {name: value for name, value in question.items() if value is not None}
        answer = self._request(path, given, wire.MEDIA_TYPE)
        try:
            found = wire.unpack(answer)
            if not isinstance(found, kind):
                raise TypeError(f"{type(found).__name__}, where {kind.__name__} was asked for")
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            hint = f"{type(error).__name__}: {error}"[:200]
            raise ServiceError("this is not an answer of a joulecast service", given=self.url, hint=hint) from error
        return found

    def _request(self, path: str, question: Mapping[str, Any] | None, accept: str) -> Any:
        # These modules are slow to import, and local predictions do not need them.
        from http.client import HTTPException
        from urllib.request import Request

        from .fetching import fetch

        headers = {"Accept": accept}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None
        if question is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(question).encode()
        # The scheme was checked when the client was made.
        request = Request(f"{self.url}/v1/{path}", body, headers)  # noqa: S310
        try:
            # Redirects are not followed: a service never redirects, and the token must not reach another host.
            status, answer = fetch(request, seconds=self._timeout_s, most_bytes=_MOST_BYTES)
            if status == 200:
                return json.loads(answer)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ServiceError(
                "the service does not answer",
                given=f"{self.url}: {reason}",
                hint="is `joulecast serve` running there? GET /v1/ready says",
            ) from error
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                "this is not an answer of a joulecast service", given=self.url, hint=str(error)
            ) from error
        raise _refusal(status, answer)


def _refusal(status: int, body: bytes) -> JoulecastError:
    """The error that the library would raise, made from the answer of the service."""
    try:
        problem = json.loads(body)
        kind = problem["type"].removeprefix(PROBLEM_PREFIX)
        parts = {name: problem.get(name) for name in ("given", "allowed", "hint")}
        what = problem["title"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError("the service refuses", status=status, given=f"{status}: {body[:200]!r}")
    known = ERRORS_BY_PROBLEM.get(kind)
    return ServiceError(what, status=status, **parts) if known is None else known(what, **parts)
