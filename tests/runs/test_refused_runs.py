"""What training runs refuse: each refusal names the fault, the value given, what is allowed and a way on."""

import pytest

from joulecast import best_run, predict_run
from joulecast.errors import InputError, UnknownNameError

BERT = {"model": "bert_base", "input_shape": (64, 128), "gpu": "8x H100 SXM", "samples": 6400, "precision": "bf16"}
DATA, REPLICAS = "needs the size of its data", "cannot be divided into replicas and micro-batches"
RUNS = [
    ({"samples": 0}, "samples is out of range"),
    ({"samples": None}, DATA),
    ({"tokens": 5}, DATA),
    ({"epochs": -1}, "epochs is out of range"),
    ({"pue": 0.9}, "pue is out of range"),
    ({"accumulation": 3}, REPLICAS),
    ({"gpu": "3x H100 SXM"}, REPLICAS),
    ({"tensor_parallel": 3}, "groups whose collectives were measured"),
    ({"gpu": "8x H100 SXM", "tensor_parallel": 8}, "the heads of bert_base cannot be divided"),
    *(({f"{name}_parallel": 3}, "the GPUs cannot be divided so") for name in ("pipeline", "context", "expert")),
    ({"context_parallel": 0}, "positive integer"),
    ({"expert_parallel": 4}, "the experts of bert_base cannot be divided"),
    ({"gpu": "8x H100 SXM", "pipeline_parallel": 8}, "the layers cannot be divided into stages"),
    ({"sharding": "zero4"}, "zero4"),
    ({"recompute": "some"}, "some"),
    ({"lora": 0}, "lora"),
    ({"base_precision": "int3"}, "int3"),
    ({"network_bandwidth": 0}, "network_bandwidth is out of range"),
    ({"loader_samples_per_s": float("nan")}, "loader_samples_per_s is out of range"),
    ({"carbon": "Atlantis"}, "Atlantis"),
]
IMAGES = {"model": "resnet50", "input_shape": (32, 3, 224, 224), "gpu": "H100 SXM"}
OF_IMAGES = [
    ({"tokens": 1e6}, "tokens are counted"),
    ({"samples": 100, "precision": "fp8"}, "no layers"),
    ({"samples": 8, "gpu": "2x A30", "tensor_parallel": 2}, "can share"),
]
CHOSEN = {"model": "bert_base", "input_shape": (32, 128), "gpus": ("A30", "L4"), "counts": (1,)}
CHOSEN |= {"samples": 1e5, "precision": "bf16"}
LATE = "no way to train keeps these limits\ngiven:   max_time_s=1\nallowed: the quickest"
CHOICES = [
    ({"objective": "fame"}, "objective"),
    ({"objective": "cost"}, "prices"),
    ({"max_cost": 5}, "no cost is known of these ways"),
    ({"samples": None}, "size of its data"),
    ({"samples": 0}, "samples is out of range"),
    ({"counts": (3,)}, "cannot be divided"),
    ({"counts": (0,)}, "the number of GPUs is out of range"),
    ({"clocks": ()}, "there is nothing to choose from"),
    ({"lora_targets": "query"}, "layers get adapters of a rank"),
    ({"gpus": "T4"}, "nothing trains this model so"),
    ({"max_time_s": 1}, LATE),
]
NAMES = [{"sharding": "zero4"}, {"recompute": "some"}, {"carbon": "Atlantis"}, {"objective": "fame"}]
NAMES += [{"base_precision": "int3"}]
REFUSED = [
    *((predict_run, BERT, *row) for row in RUNS),
    *((predict_run, IMAGES, *row) for row in OF_IMAGES),
    *((best_run, CHOSEN, *row) for row in CHOICES),
]


@pytest.mark.parametrize(("function", "asked", "options", "says"), REFUSED)
def test_what_cannot_be_is_refused(function, asked, options, says):
    with pytest.raises(UnknownNameError if options in NAMES else InputError, match=says) as refused:
        function(**{**asked, **options})
    assert refused.value.given is not None
    assert refused.value.allowed or function is best_run
    assert refused.value.hint
