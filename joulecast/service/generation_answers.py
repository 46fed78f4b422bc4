"""Answers to questions about generation and training over several GPUs, for models that are known by name."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InputError, unknown_name
from ..extraction import Job
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..extraction.models.spelling import known_as
from ..generation.choices import GenerationChoices
from ..generation.choosing import BATCHES, CLOCKS, best_generation, named
from ..generation.engines import ENGINES
from ..generation.generate import predict_generation
from ..generation.images.predict import ImagePrediction, predict_image
from ..generation.models import find_decoder
from ..generation.parallel import layouts, split_count
from ..generation.prediction import GenerationPrediction
from ..generation.training import ParallelTraining, training_of
from ..hardware.host import find_host
from ..operations.network import Network
from ..predictors.networks.execution import Execution
from .generation_questions import (
    BestGenerationQuestion,
    GenerationQuestion,
    ImageQuestion,
    ParallelTrainingQuestion,
)
from .networks import Networks
from .problems import too_large
from .settings import Settings
from .validation import checked_gpu, checked_host, checked_predictor, checked_prices, plain_clock


class GenerationAnswers:
    """Answers questions about generation."""

    _settings: Settings
    networks: Networks

    def predict_generation(self, question: GenerationQuestion) -> GenerationPrediction:
        """See `joulecast.predict_generation`; models are those whose parts are known without torch."""
        _refuse_unknown(question.model, question.engine)
        _check_gpus(question.gpu, question.predictor, "inference")
        given = question.model_dump(exclude={"clock_mhz"})
        return predict_generation(given.pop("model"), given.pop("gpu"), clock=plain_clock(question.clock_mhz), **given)

    def best_generation(self, question: BestGenerationQuestion) -> GenerationChoices:
        """See `joulecast.best_generation`; models are those whose parts are known without torch."""
        _refuse_unknown(question.model, question.engine)
        for name in question.gpus or ():
            _check_gpus(name)
        clocks = question.clocks_mhz
        decoder = find_decoder(question.model)
        ways = sum(len(list(layouts(count, gpu, decoder))) for count, gpu in named(question.gpus, question.counts))
        choices = ways * len(question.batches or BATCHES) * (CLOCKS if clocks is None else len(clocks))
        choices *= len(question.precisions)
        if choices > self._settings.max_choices:
            raise too_large("there are too many choices to compare", choices, self._settings.max_choices)
        given = question.model_dump(exclude={"clocks_mhz", "price_per_hour"})
        return best_generation(
            given.pop("model"),
            clocks=None if clocks is None else [plain_clock(clock) or clock for clock in clocks],
            price_per_hour=checked_prices(question.price_per_hour),
            **given,
        )

    def predict_image(self, question: ImageQuestion) -> ImagePrediction:
        """See `joulecast.predict_image`."""
        predictor = checked_predictor(question.predictor, checked_gpu(question.gpu), "inference")
        given = question.model_dump(exclude={"clock_mhz", "host", "predictor"})
        return predict_image(
            given.pop("model"),
            given.pop("gpu"),
            clock=plain_clock(question.clock_mhz),
            host=checked_host(question.host),
            predictor=predictor,
            **given,
        )

    def predict_parallel_training(self, question: ParallelTrainingQuestion) -> ParallelTraining:
        """See `joulecast.predict_parallel_training`."""
        predictor = _check_gpus(question.gpu, question.predictor, "training")

        job = Job.of(vars(question), mode="training", host=checked_host(question.host))

        def extract(shape: tuple[int, ...]) -> Network:
            return self.networks.extract(replace(job, input_shape=shape))

        given = question.model_dump(
            include={"data_parallel", "tensor_parallel", "pipeline_parallel", "micro_batches", "precision"}
        )
        return training_of(
            extract,
            question.input_shape,
            question.gpu,
            clock=plain_clock(question.clock_mhz),
            power_limit_w=question.power_limit_w,
            execution=Execution.of(job.execution, find_host(job.host)),
            predictor=predictor,
            **given,
        )


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
