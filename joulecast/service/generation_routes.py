"""The paths under /v1 about generation and training over several GPUs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ..generation.choices import GenerationChoices
from ..generation.images.predict import ImagePrediction
from ..generation.prediction import GenerationPrediction
from ..generation.training import ParallelTraining
from . import generation_schemas as schemas
from .answering import FormatQuery, answering, ask
from .caching import CachedRoute
from .generation_questions import (
    BestGenerationQuestion,
    GenerationQuestion,
    ImageQuestion,
    ParallelTrainingQuestion,
)

generation = APIRouter(prefix="/v1", route_class=CachedRoute, tags=["generation"])


@generation.post("/predict_generation", **answering(schemas.GenerationAnswer))
async def predict_generation(request: Request, question: GenerationQuestion) -> Response:
    """Predict seconds, watts and joules per token of a language model that an engine serves."""
    return await ask(request, None, lambda a: a.predict_generation(question), GenerationPrediction.to_dict)


# The name that it has on the command line.
generation.post("/generate", **answering(schemas.GenerationAnswer), include_in_schema=False)(predict_generation)


@generation.post("/best_generation", **answering(schemas.BestGenerationAnswer, as_csv=True))
async def best_generation(
    request: Request,
    question: BestGenerationQuestion,
    format: FormatQuery = None,  # noqa: A002
) -> Response:
    """Choose GPU, number of GPUs, clock, batch and precision to serve a language model; with the Pareto front."""
    to_csv = GenerationChoices.to_csv
    return await ask(request, format, lambda a: a.best_generation(question), _with_rows, to_csv)


def _with_rows(choices: GenerationChoices) -> dict[str, Any]:
    """The choices as a dictionary with all ways, which a plot shows."""
    return {**choices.to_dict(), "rows": [row.to_dict() for row in choices.rows]}


@generation.post("/predict_image", **answering(schemas.ImageAnswer))
async def predict_image(request: Request, question: ImageQuestion) -> Response:
    """Predict seconds, watts and joules of images or videos that a diffusion pipeline makes."""
    return await ask(request, None, lambda a: a.predict_image(question), ImagePrediction.to_dict)


@generation.post("/predict_parallel_training", **answering(schemas.ParallelTrainingAnswer))
async def predict_parallel_training(request: Request, question: ParallelTrainingQuestion) -> Response:
    """Predict an iteration of training a transformer over several GPUs of a node."""
    return await ask(request, None, lambda a: a.predict_parallel_training(question), ParallelTraining.to_dict)
