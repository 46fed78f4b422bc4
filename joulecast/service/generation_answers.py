"""Answers to questions about generation and training over several GPUs, for models that are known by name."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, unknown_name
from ..extraction import Job
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..extraction.models.spelling import known_as
from ..generation.choices import GenerationChoices
from ..generation.choosing import BATCHES, CLOCKS
from ..generation.engines import ENGINES
from ..generation.generate import predict_generation
from ..generation.images.predict import ImagePrediction, predict_image
from ..generation.models import find_decoder
from ..generation.parallel import compared, layouts, split_count
from ..generation.prediction import GenerationPrediction
from ..runs import Run
from ..runs.choosing import CLOCKS as RUN_CLOCKS
from ..runs.choosing import RunChoices, best_of
from ..runs.parallel import PARTS, ParallelTraining, training_of
from ..runs.predict import run_of
from ..traffic import ServingSimulation, rates
from ..traffic.best import best_generation
from ..traffic.simulate import simulate_serving
from .networks import Networks
from .problems import too_large
from .settings import Settings
from .validation import arguments_of, checked_gpu, checked_predictor

_MOST_REQUESTS = 1_000_000  # A minute of one core. In a closed loop, each may be longer than a second, and counts more.
_MOST_WAYS = 200  # Each takes a second or two.


class GenerationAnswers:
    """Answers questions about generation."""

    _settings: Settings
    networks: Networks

    def predict_generation(self, question: Any) -> GenerationPrediction:
        """See `joulecast.predict_generation`; models are those whose parts are known without torch."""
        _refuse_unknown(question.model, question.engine)
        _check_gpus(question.gpu, question.predictor, "inference")
        return predict_generation(**arguments_of(question))

    def best_generation(self, question: Any) -> GenerationChoices:
        """See `joulecast.best_generation`; models are those whose parts are known without torch."""
        _refuse_unknown(question.model, question.engine)
        for name in question.gpus or ():
            _check_gpus(name)
        clocks, caps = question.clocks_mhz, question.power_limit_w
        decoder = find_decoder(question.model)
        choices = sum(
            len(list(layouts(count, gpu, decoder))) for count, gpu in compared(question.gpus, question.counts)
        )
        choices *= len(question.precisions) * (len(caps) if isinstance(caps, list) else 1)
        simulated = question.rate_per_s is not None or question.max_total_power_w is not None
        most = _MOST_WAYS if simulated else self._settings.max_choices
        choices *= len(question.batches or (rates.BATCHES if simulated else BATCHES))
        choices *= (len(rates.CLOCKS) if simulated else CLOCKS) if clocks is None else len(clocks)
        if choices > most:
            raise too_large("there are too many choices to compare", choices, most)
        return best_generation(**arguments_of(question))

    def predict_image(self, question: Any) -> ImagePrediction:
        """See `joulecast.predict_image`."""
        predictor = _check_gpus(question.gpu, question.predictor)
        return predict_image(**{**arguments_of(question), "predictor": predictor})

    def predict_parallel_training(self, question: Any) -> ParallelTraining:
        """See `joulecast.predict_parallel_training`."""
        asked = arguments_of(question)
        job = Job.of(asked, mode="training", predictor=_check_gpus(question.gpu, question.predictor, "training"))
        parts = {name: asked[name] for name in PARTS}
        return training_of(job, asked["gpu"], asked["clock"], parts, asked["micro_batches"], self.networks.extract)

    def simulate_serving(self, question: Any) -> ServingSimulation:
        """See `joulecast.simulate_serving`; requests come at a rate or in a closed loop."""
        _refuse_unknown(question.model, question.engine)
        _check_gpus(question.gpu, question.predictor)
        if question.draft_model is not None:
            _refuse_unknown(question.draft_model, question.engine)
        replays = 1 if question.level is None else 3
        expected = replays * (question.requests or question.concurrency or 0) * (question.duration_s or 0)
        if expected > _MOST_REQUESTS:
            raise too_large("there are too many requests to simulate", expected, _MOST_REQUESTS)
        return simulate_serving(**arguments_of(question))

    def predict_run(self, question: Any) -> Run:
        """See `joulecast.predict_run`."""
        asked = arguments_of(question)
        asked["predictor"] = _check_gpus(question.gpu, question.predictor, "training")
        return run_of(self.networks.extract, asked)

    def best_run(self, question: Any) -> RunChoices:
        """See `joulecast.best_run`."""
        for name in question.gpus or ():
            _check_gpus(name, question.predictor, "training")
        asked = arguments_of(question)
        ways = len(compared(question.gpus, question.counts))
        choices = ways * (RUN_CLOCKS if asked["clocks"] is None else len(asked["clocks"]))
        if choices > self._settings.max_choices:
            raise too_large("there are too many choices to compare", choices, self._settings.max_choices)
        return best_of(self.networks.extract, asked)


def _check_gpus(name: str, predictor: str | None = None, mode: str = "inference") -> str | None:
    """Check the name of one GPU or of several ("2x H100 SXM"), and that of a predictor for it."""
    _, single = split_count(name)
    return checked_predictor(predictor, checked_gpu(single), mode)


def _refuse_unknown(model: str, engine: str) -> None:
    if known_as(model) not in LANGUAGE_MODELS:
        raise unknown_name("language model", model, LANGUAGE_MODELS, hint="the library takes configurations, too")
    if engine in ENGINES and not ENGINES[engine].fused:
        raise InputError(
            "a service predicts engines with fused kernels",
            given=engine,
            allowed=", ".join(name for name in ENGINES if ENGINES[name].fused),
            hint="for eager steps ask /v1/predict, with a cache_length",
        )
