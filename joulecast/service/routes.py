"""The paths under /v1 that answer questions about models, networks and operations."""

from __future__ import annotations

import functools
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from ..operations.network import Network
from ..predictors.explanation import Explanation
from ..predictors.networks.many import NetworkPredictions
from ..predictors.networks.prediction import Prediction
from ..predictors.operation_predictions import OperationPredictions
from ..queries import Choices, Sweep
from . import schemas
from .answering import FormatQuery, answering, ask
from .batches import batch_csv, batch_json
from .caching import CachedRoute, Handler
from .query_strings import BestQuery, ExtractQuery, PredictQuery, SweepQuery
from .questions import (
    BatchQuestion,
    BestQuestion,
    ExplainQuestion,
    ExtractQuestion,
    ManyQuestion,
    OperationsQuestion,
    PredictQuestion,
    SweepQuestion,
)
from .rendering import media_type_of, rendered
from .uploads import FileQuery


class _PredictRoute(CachedRoute):
    """Answers cached networks directly, because FastAPI and a thread would double the time."""

    async def answered(self, handler: Handler, request: Request, question: BaseModel | None) -> Response:
        """See `CachedRoute.answered`."""
        if not isinstance(question, PredictQuestion) or question.tree or request.scope["query_string"]:
            return await handler(request)
        found = request.app.state.answers.predict_at_once(question)
        if found is None:
            return await handler(request)
        media_type = media_type_of(request.headers.get("accept", ""))
        content = rendered(found, media_type, Prediction.to_dict, Prediction.to_csv)
        return Response(content, media_type=media_type)


_BYTES = {"type": "string", "format": "binary"}

predictions = APIRouter(prefix="/v1", route_class=_PredictRoute)
questions = APIRouter(prefix="/v1", route_class=CachedRoute)


@questions.get("/predict", **answering(schemas.PredictionAnswer, as_csv=True), tags=["predict"])
async def predict_by_name(request: Request, query: Annotated[PredictQuery, Query()]) -> Response:
    """Predict time, power and energy of one iteration of a model, given by name."""
    question = query.question(PredictQuestion)
    return await ask(request, query.format, lambda a: a.predict(question), Prediction.to_dict, Prediction.to_csv)


@predictions.post("/predict", **answering(schemas.PredictionAnswer, as_csv=True), tags=["predict"])
async def predict(request: Request, question: PredictQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict time, power and energy of one iteration of a model, or of a list of operations."""
    to_dict = functools.partial(Prediction.to_dict, tree=question.tree)
    return await ask(request, format, lambda a: a.predict(question), to_dict, Prediction.to_csv)


@questions.post("/predict/batch", **answering(schemas.BatchAnswer, as_csv=True), tags=["predict"])
async def predict_batch(request: Request, question: BatchQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict up to thousands of candidates. One that is refused has a problem in its place; others are answered."""
    to_dict = functools.partial(batch_json, details=question.details)
    return await ask(request, format, lambda a: a.predict_batch(question), to_dict, batch_csv, as_value=False)


@questions.post("/predict_many", **answering(schemas.ManyAnswer, as_csv=True), tags=["predict"])
async def predict_many(request: Request, question: ManyQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict the totals of up to thousands of networks on one GPU, such as those of an architecture search."""
    to_csv = NetworkPredictions.to_csv
    return await ask(request, format, lambda a: a.predict_many(question), NetworkPredictions.to_dict, to_csv)


@questions.post("/predict_operations", **answering(schemas.OperationsAnswer, as_csv=True), tags=["predict"])
async def predict_operations(
    request: Request,
    question: OperationsQuestion,
    format: FormatQuery = None,  # noqa: A002
) -> Response:
    """Predict single operations, each running alone in a loop."""
    to_csv = OperationPredictions.to_csv
    return await ask(request, format, lambda a: a.predict_operations(question), OperationPredictions.to_dict, to_csv)


@questions.post("/explain", **answering(schemas.ExplainAnswer), tags=["predict"])
async def explain(request: Request, question: ExplainQuestion) -> Response:
    """Explain what bounds an operation, which measured operations are nearest, and the effect of each input."""
    return await ask(request, None, lambda a: a.explain(question), Explanation.to_dict)


@questions.get("/sweep", **answering(schemas.SweepAnswer, as_csv=True), tags=["choose"])
async def sweep_by_name(request: Request, query: Annotated[SweepQuery, Query()]) -> Response:
    """Predict a model, given by name, on several GPUs and clocks."""
    question = query.question(SweepQuestion)
    return await ask(request, query.format, lambda a: a.sweep(question), Sweep.to_dict, Sweep.to_csv)


@questions.post("/sweep", **answering(schemas.SweepAnswer, as_csv=True), tags=["choose"])
async def sweep(request: Request, question: SweepQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Predict a job on several GPUs and clocks, in one or several precisions."""
    return await ask(request, format, lambda a: a.sweep(question), Sweep.to_dict, Sweep.to_csv)


@questions.get("/best", **answering(schemas.BestAnswer, as_csv=True), tags=["choose"])
async def best_by_name(request: Request, query: Annotated[BestQuery, Query()]) -> Response:
    """Choose the GPU and the clock for a model, given by name."""
    question = query.question(BestQuestion)
    return await ask(request, query.format, lambda a: a.best(question), Choices.to_dict, Choices.to_csv)


@questions.post("/best", **answering(schemas.BestAnswer, as_csv=True), tags=["choose"])
async def best(request: Request, question: BestQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """Choose the GPU and the clock for a job: the best clock of each GPU, best first."""
    return await ask(request, format, lambda a: a.best(question), Choices.to_dict, Choices.to_csv)


@questions.get("/extract", **answering(schemas.NetworkAnswer, as_csv=True), tags=["models"])
async def extract_by_name(request: Request, query: Annotated[ExtractQuery, Query()]) -> Response:
    """List the operations of a model, given by name."""
    question = query.question(ExtractQuestion)
    return await ask(request, query.format, lambda a: a.extract(question), Network.to_dict, Network.to_csv)


@questions.post(
    "/extract/file",
    **answering(schemas.NetworkAnswer),
    tags=["models"],
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _BYTES}}}},
)
async def extract_file(request: Request, query: Annotated[FileQuery, Query()]) -> Response:
    """List the operations of a model in a file: .onnx, .pt2, or the config.json of a transformer, which is the body."""
    content = await request.body()
    return await ask(request, None, lambda a: a.extract_file(query, content), Network.to_dict)


@questions.post("/extract", **answering(schemas.NetworkAnswer, as_csv=True), tags=["models"])
async def extract(request: Request, question: ExtractQuestion, format: FormatQuery = None) -> Response:  # noqa: A002
    """List the operations of a model; or check a list of operations and merge equal ones."""
    return await ask(request, format, lambda a: a.extract(question), Network.to_dict, Network.to_csv)
