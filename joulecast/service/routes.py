"""The paths under /v1."""

from __future__ import annotations

import asyncio
import functools
import platform
import time
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from .. import __version__, wire
from ..errors import RefusalError, UnknownNameError
from ..generation.prediction import GenerationPrediction
from ..operations.network import Network
from ..predictors.explanation import Explanation
from ..predictors.networks.prediction import Prediction
from ..predictors.operation_predictions import OperationPredictions
from ..queries import Choices, Sweep
from ..zoo import entries
from . import listings, metrics, schemas
from .answers import Answers, TracingNeededError, batch_csv, batch_json
from .bodies import LARGE_BYTES
from .caching import CachedRoute, Handler
from .problems import MEDIA_TYPE
from .query_strings import BestQuery, ExtractQuery, Format, PredictQuery, SweepQuery
from .questions import (
    BatchQuestion,
    BestQuestion,
    ExplainQuestion,
    ExtractQuestion,
    GenerateQuestion,
    OperationsQuestion,
    PredictQuestion,
    SweepQuestion,
)
from .reload import damage
from .rendering import (
    CSV,
    JSON,
    json_bytes,
    media_type_of,
    rendered,
)
from .validation import checked_gpu

_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_CODES = {
    400: "The request is not valid HTTP or JSON",
    401: "The token is missing or unknown",
    408: "The body arrives too slowly, or the answer takes too long",
    413: "The body, the batch or the network is too large",
    422: "A value is not valid; the problem states what was given and what is allowed",
    429: "Too many requests are waiting",
    503: "The zoo is damaged",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {code: {"description": text, **_PROBLEM} for code, text in _CODES.items()}
_NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has this answer already (If-None-Match)"}
}
_MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such name", **_PROBLEM}}
_CSV = {"text/csv": {"schema": {"type": "string"}}}

FormatQuery = Annotated[Format | None, Query(description="json or csv; or ask by the header Accept.")]
Answered = Coroutine[Any, Any, Response]
Answer = TypeVar("Answer")


def _answering(model: type[Any], *, as_csv: bool = False) -> dict[str, Any]:
    """Arguments for a route whose answers are cached."""
    ok: dict[str, Any] = {"model": model, "description": "The answer"}
    if as_csv:
        ok["content"] = _CSV
    return {"responses": {**PROBLEMS, **_NOT_MODIFIED, 200: ok}, "response_class": Response, "response_model": None}


class _PredictRoute(CachedRoute):
    """Answers cached networks directly, because FastAPI and a thread would double the time."""

    async def answered(self, handler: Handler, request: Request, body: bytes) -> Response:
        """See `CachedRoute.answered`."""
        plain = not request.scope["query_string"] and len(body) <= LARGE_BYTES
        if not plain or not request.headers.get("content-type", "").startswith("application/json"):
            return await handler(request)
        try:
            question = PredictQuestion.model_validate_json(body)
        except ValidationError:  # FastAPI reports what is wrong
            return await handler(request)
        found = request.app.state.answers.predict_at_once(question)
        if found is None:
            return await handler(request)
        media_type = media_type_of(request.headers.get("accept", ""))
        to_dict = functools.partial(Prediction.to_dict, tree=question.tree)
        content = rendered(found, media_type, to_dict, Prediction.to_csv)
        return Response(content, media_type=media_type)


predictions = APIRouter(prefix="/v1", route_class=_PredictRoute)
questions = APIRouter(prefix="/v1", route_class=CachedRoute)
system = APIRouter(prefix="/v1", responses=PROBLEMS)


async def _ask(
    request: Request,
    form: str | None,
    answer: Callable[[Answers], Any],
    to_dict: Callable[[Any], Any],
    to_csv: Callable[[Any], str] | None = None,
    *,
    as_value: bool = True,
) -> Response:
    """Compute and encode an answer in a thread. `as_value` says whether `joulecast.Client` may request exact values."""
    media_type = media_type_of(request.headers.get("accept", ""), form)
    if (to_csv is None and media_type == CSV) or (not as_value and media_type == wire.MEDIA_TYPE):
        media_type = JSON

    def body(answers: Answers) -> bytes:
        return rendered(answer(answers), media_type, to_dict, to_csv)

    return Response(await _computed(request, body), media_type=media_type)


async def _computed(request: Request, compute: Callable[[Answers], Answer]) -> Answer:
    """Compute in a thread; if the model must be traced, in the process for that."""
    state = request.app.state
    client = request.scope["state"]["client"]
    until_s = time.monotonic() + state.settings.max_seconds
    try:
        found: Answer = await state.workers.run(
            functools.partial(compute, state.answers),
            seconds=state.settings.max_seconds,
            client=client,
            left=_disconnection(request),
        )
    except TracingNeededError:
        found = await state.tracers.run(
            functools.partial(compute, state.answers.tracing(state.tracer)),
            seconds=max(0.0, until_s - time.monotonic()),
            client=client,
            left=_disconnection(request),
            stop=state.tracer.stop,
        )
    return found


async def _disconnection(request: Request) -> None:
    """Wait until the client disconnects. Its request has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@questions.get("/predict", **_answering(schemas.PredictionAnswer, as_csv=True), tags=["predict"])
async def predict_by_name(request: Request, query: Annotated[PredictQuery, Query()]) -> Response:
    """Predict time, power and energy of one iteration of a model, given by name."""
    question = query.question(PredictQuestion)
    return await _ask(request, query.format, lambda a: a.predict(question), Prediction.to_dict, Prediction.to_csv)


@predictions.post("/predict", **_answering(schemas.PredictionAnswer, as_csv=True), tags=["predict"])
async def predict(request: Request, question: PredictQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict time, power and energy of one iteration of a model, or of a list of operations."""
    to_dict = functools.partial(Prediction.to_dict, tree=question.tree)
    return await _ask(request, format, lambda a: a.predict(question), to_dict, Prediction.to_csv)


@questions.post("/predict/batch", **_answering(schemas.BatchAnswer, as_csv=True), tags=["predict"])
async def predict_batch(request: Request, question: BatchQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict up to thousands of candidates. One that is refused has a problem in its place; others are answered."""
    to_dict = functools.partial(batch_json, details=question.details)
    return await _ask(request, format, lambda a: a.predict_batch(question), to_dict, batch_csv, as_value=False)


@questions.post("/predict_operations", **_answering(schemas.OperationsAnswer, as_csv=True), tags=["predict"])
async def predict_operations(
    request: Request,
    question: OperationsQuestion,
    format: FormatQuery = None,  # noqa: A002
) -> Response:
    """Predict single operations, each running alone in a loop."""
    to_csv = OperationPredictions.to_csv
    return await _ask(request, format, lambda a: a.predict_operations(question), OperationPredictions.to_dict, to_csv)


@questions.post("/generate", **_answering(schemas.GenerationAnswer), tags=["predict"])
async def generate(request: Request, question: GenerateQuestion) -> Response:
    """Predict seconds, watts and joules per token of a language model that an engine serves."""
    return await _ask(request, None, lambda a: a.generate(question), GenerationPrediction.to_dict)


@questions.post("/explain", **_answering(schemas.ExplainAnswer), tags=["predict"])
async def explain(request: Request, question: ExplainQuestion) -> Response:
    """Explain what bounds an operation, which measured operations are nearest, and the effect of each input."""
    return await _ask(request, None, lambda a: a.explain(question), Explanation.to_dict)


@questions.get("/sweep", **_answering(schemas.SweepAnswer, as_csv=True), tags=["choose"])
async def sweep_by_name(request: Request, query: Annotated[SweepQuery, Query()]) -> Response:
    """Predict a model, given by name, on several GPUs and clocks."""
    question = query.question(SweepQuestion)
    return await _ask(request, query.format, lambda a: a.sweep(question), Sweep.to_dict, Sweep.to_csv)


@questions.post("/sweep", **_answering(schemas.SweepAnswer, as_csv=True), tags=["choose"])
async def sweep(request: Request, question: SweepQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict a job on several GPUs and clocks, in one or several precisions."""
    return await _ask(request, format, lambda a: a.sweep(question), Sweep.to_dict, Sweep.to_csv)


@questions.get("/best", **_answering(schemas.BestAnswer, as_csv=True), tags=["choose"])
async def best_by_name(request: Request, query: Annotated[BestQuery, Query()]) -> Response:
    """Choose the GPU and the clock for a model, given by name."""
    question = query.question(BestQuestion)
    return await _ask(request, query.format, lambda a: a.best(question), Choices.to_dict, Choices.to_csv)


@questions.post("/best", **_answering(schemas.BestAnswer, as_csv=True), tags=["choose"])
async def best(request: Request, question: BestQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Choose the GPU and the clock for a job: the best clock of each GPU, best first."""
    return await _ask(request, format, lambda a: a.best(question), Choices.to_dict, Choices.to_csv)


@questions.get("/extract", **_answering(schemas.NetworkAnswer, as_csv=True), tags=["models"])
async def extract_by_name(request: Request, query: Annotated[ExtractQuery, Query()]) -> Response:
    """List the operations of a model, given by name."""
    question = query.question(ExtractQuestion)
    return await _ask(request, query.format, lambda a: a.extract(question), Network.to_dict, Network.to_csv)


@questions.post("/extract", **_answering(schemas.NetworkAnswer, as_csv=True), tags=["models"])
async def extract(request: Request, question: ExtractQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """List the operations of a model; or check a list of operations and merge equal ones."""
    return await _ask(request, format, lambda a: a.extract(question), Network.to_dict, Network.to_csv)


@questions.get("/gpus", **_answering(schemas.GpusAnswer), tags=["catalogue"])
async def gpus(request: Request) -> Response:
    """List the GPU catalogue, with what was measured on each GPU."""
    return Response(json_bytes(listings.all_gpus()), media_type="application/json")


@questions.get("/execution", **_answering(schemas.ExecutionAnswer), tags=["catalogue"])
async def execution(request: Request) -> Response:
    """List how a network can be run, and the hosts that are known by name."""
    return Response(json_bytes(listings.executions_and_hosts()), media_type="application/json")


@questions.get("/models", **_answering(schemas.ModelsAnswer), tags=["models"])
async def models(
    request: Request,
    search: Annotated[str, Query(max_length=100, description="Part of a name.")] = "",
) -> Response:
    """List the models that have a name and need no torch."""
    others = request.app.state.settings.extraction and find_spec("torch") is not None
    listed = await _computed(request, lambda _: listings.all_models(search, others=others))
    return Response(json_bytes(listed), media_type="application/json")


@questions.get("/zoo", **_answering(schemas.ZooAnswer), tags=["catalogue"])
async def zoo(request: Request) -> Response:
    """List the names of the predictors."""
    return Response(json_bytes({"entries": entries()}), media_type="application/json")


def _named(model: type[Any]) -> dict[str, Any]:
    arguments = _answering(model)
    arguments["responses"] |= _MISSING
    return arguments


@questions.get("/gpus/{name}", **_named(schemas.GpuAnswer), tags=["catalogue"])
async def gpu(request: Request, name: Annotated[str, Path(max_length=100, examples=["A30"])]) -> Response:
    """All figures of a GPU, with their sources."""
    to_dict = listings.one_gpu
    return await _found(_ask(request, None, lambda _: checked_gpu(name), to_dict))


@questions.get("/zoo/{gpu}/{entry}", **_named(schemas.CardAnswer), tags=["catalogue"])
async def card(
    request: Request,
    gpu: Annotated[str, Path(max_length=100, examples=["a30"])],
    entry: Annotated[str, Path(max_length=100, examples=["forest-inference"])],
) -> Response:
    """The model card of a predictor."""
    return await _found(_ask(request, None, lambda _: listings.zoo_card(f"{gpu}/{entry}"), lambda found: found))


async def _found(answer: Answered) -> Response:
    """Call a function, and answer 404 if the name in the path does not exist."""
    try:
        return await answer
    except UnknownNameError as error:
        raise RefusalError(
            404, "unknown-name", error.what, given=error.given, allowed=error.allowed, hint=error.hint
        ) from error


@system.get("/health", response_model=schemas.HealthAnswer, tags=["system"])
async def health() -> dict[str, str]:
    """Answer 200 as long as the process runs."""
    return {"status": "ok"}


@system.get("/ready", response_model=schemas.HealthAnswer, tags=["system"])
async def ready(request: Request) -> dict[str, str]:
    """Whether the predictors are loaded and whole; 503 until then, and where questions would be answered with 503."""
    if not request.app.state.ready:
        raise RefusalError(503, "starting", "the predictors are being loaded", retry_after_s=1)
    state = request.app.state
    if state.damage is not None:
        # (it may have been restored since)
        state.damage = await asyncio.to_thread(damage)
    if state.damage is not None:
        raise RefusalError(503, "zoo", "a predictor is damaged", given=state.damage, hint="`joulecast zoo verify`")
    return {"status": "ready"}


@system.get("/version", response_model=schemas.VersionAnswer, tags=["system"])
async def version(request: Request) -> dict[str, str]:
    """The version of joulecast, and the state of the predictors."""
    return {
        "joulecast": __version__,
        "python": platform.python_version(),
        "generation": request.app.state.cache.generation,
    }


@system.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    tags=["system"],
)
async def prometheus(request: Request) -> Response:
    """Counters for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=metrics.MEDIA_TYPE)
