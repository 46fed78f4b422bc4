"""Client: the library's functions, answered by a service over HTTP."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import joulecast

from ..errors import ERRORS_BY_PROBLEM, PROBLEM_PREFIX, InputError, JoulecastError, ServiceError
from ..operations.columns import is_table, networks_of, operations_of
from ..operations.operation_list import checked_operations, mode_of
from ..predictors.networks.many import NetworkPredictions
from ..predictors.operation_predictions import OperationPredictions
from .wire import MEDIA_TYPE, pieces, question_of, unpack

LOCAL = "http://127.0.0.1:8000"
_OTHER_PROGRAM = "see that `joulecast serve`, and no other program, answers at this address"
_MOST_BYTES = 256 << 20  # of an answer; that of a batch with all its operations is ten times smaller


def _refusal(status: int, body: bytes) -> JoulecastError:
    """The error that the library would raise, made from the answer of the service."""
    try:
        problem = json.loads(body)
        kind = problem["type"].removeprefix(PROBLEM_PREFIX)
        parts = {name: problem.get(name) for name in ("given", "allowed", "hint")}
        what = problem["title"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(
            "the service refuses", status=status, given=f"{status}: {body[:200]!r}", hint=_OTHER_PROGRAM
        )
    error = ERRORS_BY_PROBLEM.get(kind)
    return ServiceError(what, status=status, **parts) if error is None else error(what, **parts)


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _asked(
    function: Callable[Arguments, Answer], asks: Callable[[Client, dict[str, Any]], Answer] | None = None
) -> Callable[Concatenate[Any, Arguments], Answer]:
    """A method with the arguments, documentation and errors of a function, which a service computes.

    `asks` asks the service, given the client and the body; without it, the path with the name of the function is
    asked.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def method(self: Any, *given: Arguments.args, **options: Arguments.kwargs) -> Answer:
        question = question_of(function, given, options)
        if asks is not None:
            return asks(self, question)
        answer: Answer = self._ask(function.__name__, question, signature.return_annotation)
        return answer

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])  # type: ignore[attr-defined]
    return cast("Callable[Concatenate[Any, Arguments], Answer]", method)


def _many(client: Client, question: dict[str, Any]) -> NetworkPredictions:
    """Many networks, in as many requests as they need."""
    networks = question.pop("networks")
    if is_table(networks):
        networks = (calls.network(place) for calls in networks_of(networks) for place in range(len(calls.names)))
    asked = ({**question, "networks": piece} for piece in pieces(networks))
    return NetworkPredictions.joined([client._ask("predict_many", each, "NetworkPredictions") for each in asked])


def _single(client: Client, question: dict[str, Any]) -> OperationPredictions:
    """Single operations, or those of a table, each different one once."""
    given = question["operations"]
    if is_table(given):
        different, places = operations_of(given)
        predictions = _single(client, {**question, "operations": different})
        return predictions.take(places, [different[place] for place in places.tolist()])
    operations = checked_operations(given)
    mode_of(operations)
    sent = [operation.to_dict() for operation in operations]
    answer: OperationPredictions = client._ask(
        "predict_operations", {**question, "operations": sent}, "OperationPredictions"
    )
    return answer


class Client:
    """Calls a service. Its methods have the names, arguments, results and errors of the library's functions.

    They are `predict`, `extract`, `best`, `sweep`, `predict_many` (in as many requests as it needs),
    `predict_operations`, `explain`, `predict_generation`, `best_generation`, `predict_image`,
    `predict_run`, `simulate_serving` and `best_run`, for models that are known by name.

    What only this process has, such as operators of your own, cannot be sent, and neither can models that need torch:
    `joulecast.extract` makes a Network of them. It can be used from several threads. Each request opens a connection of
    its own.

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
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError("this is not the URL of a service", given=url, allowed=f"such as {LOCAL}")
        self.url = url.rstrip("/")
        """URL of the service."""
        self._token = token
        self._timeout_s = timeout_s

    predict = _asked(joulecast.predict)
    extract = _asked(joulecast.extract)
    best = _asked(joulecast.best)
    sweep = _asked(joulecast.sweep)
    predict_many = _asked(joulecast.predict_many, _many)
    predict_operations = _asked(joulecast.predict_operations, _single)
    explain = _asked(joulecast.explain)
    predict_generation = _asked(joulecast.predict_generation)
    best_generation = _asked(joulecast.best_generation)
    predict_image = _asked(joulecast.predict_image)
    predict_run = _asked(joulecast.predict_run)
    simulate_serving = _asked(joulecast.simulate_serving)
    best_run = _asked(joulecast.best_run)

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
        versions: dict[str, str] = self._request("version", None, "application/json")
        return versions

    def _ask(self, path: str, question: Mapping[str, Any], kind: str) -> Any:
        """The answer to a question under /v1, as a value of the library's class of this name.

        Raises JoulecastError: What the library would raise, or a ServiceError.
        """
        answer = self._request(path, question, MEDIA_TYPE)
        try:
            value = unpack(answer)
            if type(value).__name__ != kind:
                raise TypeError(f"{type(value).__name__}, where {kind} was asked for")
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise self._no_answer(error) from error
        return value

    def _request(self, path: str, question: Mapping[str, Any] | None, accept: str) -> Any:
        """The answer to a request under /v1 as plain lists and dictionaries; a GET where there is no question.

        Raises JoulecastError: the error that the library would raise, or a ServiceError.
        """
        # These modules are slow to import, and local predictions do not need them.
        from http.client import HTTPException
        from urllib.request import Request

        from ..system.limits import fetch

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
            raise self._no_answer(error) from error
        raise _refusal(status, answer)

    def _no_answer(self, error: Exception) -> ServiceError:
        return ServiceError(
            "this is not an answer of a joulecast service",
            given=f"{self.url}: {type(error).__name__}: {error}"[:300],
            hint=_OTHER_PROGRAM,
        )
