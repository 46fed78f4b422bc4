"""Answers: checks the questions of clients and answers them with the library, in the threads of the workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import joulecast

from ..api.predicting import predicted
from ..errors import InputError, unknown_name
from ..extraction.models.language_models import LANGUAGE_MODELS
from ..extraction.models.spelling import known_as
from ..generation.choosing import BATCHES, CLOCKS
from ..generation.engines import ENGINES
from ..generation.models import find_decoder
from ..generation.parallel import compared, layouts, split_count
from ..hardware import gpus
from ..predictors.networks.many import NetworkPredictions
from ..predictors.operation_predictions import OperationPredictions
from ..progress import paced
from ..queries import Choices, Question
from ..queries import best as best_of
from ..queries import sweep as sweep_of
from ..queries.evaluation import MOST_CLOCKS
from ..queries.objectives import Tariff
from ..queries.search import Constraints
from ..runs.choosing import CLOCKS as RUN_CLOCKS
from ..runs.choosing import RunChoices
from ..runs.choosing import best_of as best_run_of
from ..runs.predict import run_of
from ..traffic import rates
from .networks import Networks, entry_of
from .problems import refuse_over
from .settings import Settings
from .validation import arguments_of, checked_gpu, checked_predictor, plain_clock

_MOST_REQUESTS = 1_000_000  # A minute of one core. In a closed loop, each may be longer than a second, and counts more.
_MOST_WAYS = 200  # Each takes a second or two.


class Answers:
    """Answers questions with the library, which keeps what does not depend on the clock."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.networks = Networks(settings)

    def extract(self, question: Any) -> joulecast.Network:
        """List the operations of a model; or check a list of operations and merge equal ones."""
        return self.networks.of(question, question.precision)

    def predict(self, question: Any) -> joulecast.Prediction:
        """Predict time, power and energy of one iteration of a model, or of a list of operations."""
        gpu, job = checked_gpu(question.gpu), self.networks.job(question, question.precision)
        mode = job.model.mode if isinstance(job.model, joulecast.Network) else job.mode
        job = replace(job, predictor=checked_predictor(question.predictor, gpu, mode))
        return predicted(job, question.gpu, plain_clock(question.clock_mhz), self.networks.extract)

    def predict_operations(self, question: Any) -> OperationPredictions:
        """Predict single operations, each running alone in a loop."""
        operations = [entry_of(item).operation for item in question.operations]
        return joulecast.predict_operations(**{**_named(question, operations[0].mode), "operations": operations})

    def explain(self, question: Any) -> joulecast.Explanation:
        """Explain what bounds an operation, which measured operations are nearest, and the effect of each input."""
        operation = entry_of(question.operation).operation
        return joulecast.explain(**{**_named(question, operation.mode), "operation": operation})

    def predict_many(self, question: Any) -> NetworkPredictions:
        """Predict the totals of thousands of networks on GPUs at clocks, such as those of an architecture search."""
        asked = arguments_of(question)
        boards, clocks = (each if isinstance(each, list) else [each] for each in (asked["gpu"], asked["clock"]))
        for board in boards:
            checked_predictor(question.predictor, checked_gpu(board), question.mode)
        rows = len(question.networks) * len(boards) * len(clocks)
        refuse_over("there are too many predictions: networks x GPUs x clocks", rows, self._settings.max_choices)
        networks = (self.networks.of(each, question.precision) for each in paced(question.subjects()))
        listed = {"networks": networks, "input_shape": None, "precision": "default"}
        return joulecast.predict_many(**{**asked, "gpu": boards, "clock": clocks, **listed})

    def sweep(self, question: Any) -> joulecast.Sweep:
        """Predict a job on several GPUs and clocks, in one or several precisions."""
        return sweep_of(*self._comparison(question))

    def best(self, question: Any) -> Choices:
        """Choose the GPU and the clock for a job: the best clock of each GPU, best first."""
        constraints = Constraints(question.max_time_s, question.max_power_w)
        return best_of(*self._comparison(question), constraints)

    def _comparison(self, question: Any) -> tuple[Question, str, Tariff]:
        """The choices to compare, the objective, and the prices."""
        given = arguments_of(question)
        chosen = None if question.gpus is None else list(map(checked_gpu, question.gpus))
        clocks, precision = given["clocks"], given["precision"]
        per_gpu = MOST_CLOCKS if clocks is None else len(clocks)
        count = len(chosen or gpus()) * per_gpu * (1 if isinstance(precision, str) else len(precision))
        count *= len(question.batch_sizes or [1])
        self._refuse_choices(count)
        tariff = Tariff.of(given["price_per_hour"], question.price_per_kwh, question.carbon)
        job = self.networks.job(question, "default", predictor=checked_predictor(question.predictor))
        asked = Question.of(job, chosen, clocks, question.batch_sizes, precision, self.networks.extract)
        each = len(asked.gpus) * per_gpu
        work = sum(len(variant.network) for variant in asked.variants) * each
        refuse_over("this comparison is too much work: operations x GPUs x clocks", work, self._settings.max_work)
        return asked, question.objective, tariff

    def predict_generation(self, question: Any) -> joulecast.GenerationPrediction:
        """Predict seconds, watts and joules per token of a language model that an engine serves."""
        return joulecast.predict_generation(**_named(question))

    def best_generation(self, question: Any) -> joulecast.GenerationChoices:
        """Choose GPU, number of GPUs, clock, batch and precision to serve a language model; with the Pareto front."""
        asked = _named(question)
        clocks, caps = question.clocks_mhz, question.power_limit_w
        decoder = find_decoder(question.model)
        choices = sum(
            len(list(layouts(count, gpu, decoder))) for count, gpu in compared(question.gpus, question.counts)
        )
        choices *= len(question.precisions) * (len(caps) if isinstance(caps, list) else 1)
        choices *= 2 if question.draft_tokens else 1
        simulated = question.rate_per_s is not None or question.max_total_power_w is not None
        choices *= len(question.batches or (rates.BATCHES if simulated else BATCHES))
        choices *= (len(rates.CLOCKS) if simulated else CLOCKS) if clocks is None else len(clocks)
        self._refuse_choices(choices, _MOST_WAYS if simulated else None)
        return joulecast.best_generation(**asked)

    def predict_image(self, question: Any) -> joulecast.ImagePrediction:
        """Predict seconds, watts and joules of images or videos that a diffusion pipeline makes."""
        return joulecast.predict_image(**_named(question))

    def simulate_serving(self, question: Any) -> joulecast.ServingSimulation:
        """Simulate a language model that serves requests as they arrive: tails of latencies, throughput, joules."""
        asked = _named(question)
        replays = 1 if question.level is None else 3
        # Requests come at a rate or in a closed loop.
        expected = replays * (question.requests or question.concurrency or 0) * (question.duration_s or 0)
        refuse_over("there are too many requests to simulate", expected, _MOST_REQUESTS)
        return joulecast.simulate_serving(**asked)

    def predict_run(self, question: Any) -> joulecast.Run:
        """Predict a whole training run: hours, joules at the boards and at the plug, price and carbon."""
        return run_of(self.networks.extract, _named(question, "training"))

    def best_run(self, question: Any) -> RunChoices:
        """Choose GPUs, their number, clock and division of work for a whole training run, before a deadline."""
        asked = _named(question, "training")
        ways = len(compared(question.gpus, question.counts))
        self._refuse_choices(ways * (RUN_CLOCKS if asked["clocks"] is None else len(asked["clocks"])))
        return best_run_of(self.networks.extract, asked)

    def _refuse_choices(self, count: int, most: int | None = None) -> None:
        refuse_over("there are too many choices to compare", count, most or self._settings.max_choices)


def _named(question: Any, mode: str = "inference") -> dict[str, Any]:
    """What a question asks about several GPUs or a model that is served, with all names checked: none is a path.

    Models that are served are those whose parts are known without torch.
    """
    asked = arguments_of(question)
    if "engine" in asked:
        for model in filter(None, (asked["model"], asked.get("draft_model"))):
            if known_as(model) not in LANGUAGE_MODELS:
                hint = "the library takes configurations, too"
                raise unknown_name("language model", model, LANGUAGE_MODELS, hint=hint)
        if asked["engine"] in ENGINES and not ENGINES[asked["engine"]].fused:
            raise InputError(
                "a service predicts engines with fused kernels",
                given=asked["engine"],
                allowed=", ".join(name for name in ENGINES if ENGINES[name].fused),
                hint="for eager steps ask /v1/predict, with a cache_length",
            )
    for name in [asked["gpu"]] if "gpu" in asked else asked["gpus"] or ():
        _, single = split_count(name)
        predictor = checked_predictor(asked.get("predictor"), checked_gpu(single), mode)
        if "gpu" in asked:
            asked["predictor"] = predictor
    return asked
