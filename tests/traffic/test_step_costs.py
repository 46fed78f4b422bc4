"""Steps that are looked up, against the same steps predicted whole."""

import random

import numpy as np
import pytest

from joulecast.generation.generate import server_of
from joulecast.generation.serving import Lengths
from joulecast.generation.steps import StepTokens
from joulecast.predictors.predictor import OperationPredictor
from joulecast.traffic.step_costs import PredictedSteps

ASKED = {
    "max_step_tokens": 2048,
    "engine": "vllm",
    "precision": "bf16",
    "expert_parallel": 1,
    **dict.fromkeys(
        ("tensor_parallel", "cache_precision", "power_limit_w", "sampling", "host", "calibration", "predictor")
    ),
}
SERVED = [
    {"model": "qwen3_8b", "gpu": "H100 SXM"},
    {"model": "qwen3_8b", "gpu": "H100 SXM", "power_limit_w": 350.0},
    {"model": "qwen3_30b_a3b", "gpu": "2x B200", "precision": "fp8", "engine": "tensorrt_llm"},
]


@pytest.fixture(scope="module", params=SERVED, ids=["prompts at the cap", "decoding at the cap", "experts"])
def tables(request):
    server = server_of({**ASKED, **request.param}, 1, Lengths(500, 0, 500), Lengths(300, 0, 300), "continuous")
    return server, PredictedSteps.of(server, float(server.gpu.boost_clock_mhz), 64, 4096)


def errors(tables, looked_up):
    """Absolute errors of seconds and joules, shape (2, steps)."""
    server, steps = tables
    server.prepare(step for step, _ in looked_up)
    found = []
    for step, (time_s, energy_j) in looked_up:
        whole_s, whole_j = server.cost(step, [float(server.gpu.boost_clock_mhz)])[:, 0]
        found.append((time_s / whole_s - 1, energy_j / (steps.boards * whole_j) - 1))
    return abs(np.array(found)).T


def drawn(random_, low, high):
    """An integer whose logarithm is drawn evenly."""
    return round(low * (high / low) ** random_.random())


def decoding(random_, costs):
    sequences, context = drawn(random_, 1, 64), drawn(random_, 65, 4000)
    return StepTokens(sequences, context, sampled=sequences), costs.decode(sequences, context)


def mixed(random_, costs):
    sequences = random_.choice((0, 1, 1)) * drawn(random_, 1, 56)
    context, prompts = drawn(random_, 65, 4000) if sequences else 0, drawn(random_, 1, 8)
    chunk, earlier = drawn(random_, 16, 1900 // prompts), random_.choice((0, drawn(random_, 16, 4000)))
    tokens, sampled = prompts * chunk, sequences + prompts
    step = StepTokens(sequences, context, prompts, chunk, earlier, sampled)
    return step, costs.mixed(sequences, context, prompts, tokens, tokens * (earlier + chunk / 2), sampled)


@pytest.mark.parametrize(("step", "mean", "most"), [(decoding, 0.006, 0.04), (mixed, 0.01, 0.05)])
def test_steps_cost_what_they_are_predicted_to(tables, step, mean, most):
    random_ = random.Random(5)
    off = errors(tables, [step(random_, tables[1]) for _ in range(25)])
    assert off.mean(axis=1).max() < mean
    assert off.max() < most


def test_kernels_of_many_steps_are_predicted_once(tables, monkeypatch):
    """They were predicted again for each step, which took nine tenths of a simulation and was not used."""
    server, asked, predict = tables[0], [], OperationPredictor.predict_for_network
    monkeypatch.setattr(
        OperationPredictor, "predict_for_network", lambda *given: asked.append(given) or predict(*given)
    )
    server.kernels({step: server.network(step) for step in (StepTokens(3, 77, sampled=3), StepTokens(5, 99))}, [1400.0])
    assert len(asked) == 1


def test_more_of_anything_takes_no_less(tables):
    _, costs = tables
    assert costs.decode(8, 4000)[0] > costs.decode(8, 500)[0]
    assert costs.decode(64, 1000)[0] > costs.decode(8, 1000)[0]
    assert (
        costs.mixed(8, 500, 1, 1000, 500e3, 9)[0] > costs.mixed(8, 500, 1, 500, 125e3, 9)[0] > costs.decode(8, 500)[0]
    )
