"""Unusual modules: they are traced if possible, and otherwise refused with the right advice."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from modules import module
from torch import nn

import joulecast
from joulecast import Operation
from joulecast.errors import ExtractionError, InputError

SHAPE = (4, 8)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_tensor_without_dimensions_holds_one_number(mode):
    # Scaled by the exponential of one learned number, as in CLIP.
    scaled = module(lambda self, x: x * self.log_scale.exp(), log_scale=nn.Parameter(torch.tensor(1.0)))
    network = joulecast.extract(scaled, SHAPE, mode=mode)
    exp = next(entry.operation for entry in network if entry.operation.kind == "exp")
    assert exp.input_shapes == ((1,),)
    for gpu in ("A30", "H100 SXM", "T4"):
        assert joulecast.predict(network, None, gpu).time_s > 0
    assert Operation("exp", [()]) == Operation("exp", [(1,)])


def test_a_forward_that_moves_tensors_to_a_gpu():
    on_gpu = module(lambda self, x: torch.relu(x.cuda()) + torch.ones(8, device="cuda:0").to("cuda"))
    assert [e.operation.kind for e in joulecast.extract(on_gpu, SHAPE)] == ["relu", "add"]


def scripted() -> nn.Module:
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        return torch.jit.script(nn.Linear(8, 8))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.compile imports this module.
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: nn.Linear, InputError, r"this is a class, not a model(?s:.*)given:   Linear(?s:.*)Linear\(\.\.\.\)"),
        (lambda: nn.DataParallel(nn.Linear(8, 8)), InputError, r"several GPUs(?s:.*)model\.module"),
        (lambda: nn.Sequential(nn.ReLU(), nn.DataParallel(nn.Linear(8, 8))), InputError, "DataParallel at 1"),
        (lambda: nn.Sequential(nn.LazyLinear(8)), InputError, "lazy module(?s:.*)LazyLinear at 0(?s:.*)run it once"),
        (lambda: torch.compile(nn.Linear(8, 8)), InputError, "_orig_mod"),
        (scripted, InputError, "give the original module"),
        (
            lambda: nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(8, 8)),
            *(InputError, "CPUs only(?s:.*)Linear at 0(?s:.*)before torch.ao.quantization"),
        ),
        (
            lambda: module(lambda self, x: torch.relu(x) + float(x.detach().numpy().mean())),
            *(ExtractionError, "takes values out of PyTorch"),
        ),
        (
            lambda: module(lambda self, x: torch.relu(x) + sum(x.sum(0).tolist())),
            *(ExtractionError, "take decisions by values out of the forward"),
        ),
    ],
)
def test_refused_with_advice(make, error, says):
    with pytest.raises(error, match=says):
        joulecast.extract(make(), SHAPE)


class Deep(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.last = nn.Dropout()

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        with torch.autocast("cuda", dtype=torch.float16):
            return self.last(self.layers[0](x))


def test_a_hundred_threads_get_the_same_answers_as_one():
    shared = Deep(6)
    jobs = [
        (model, mode, precision)
        for model in (shared, shared, "resnet18", "squeezenet1_1", Deep(3))
        for mode in ("inference", "training")
        for precision in ("default", "bf16")
    ]

    def ask(job):
        model, mode, precision = job
        network = joulecast.extract(
            model, (2, 3, 64, 64) if isinstance(model, str) else SHAPE, mode=mode, precision=precision
        )
        return network, joulecast.predict(network, None, "A30").energy_j

    expected = [ask(job) for job in jobs]
    start = threading.Barrier(100)

    def ask_at_once(job):
        start.wait()
        return ask(job)

    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(ask_at_once, jobs * 5))
    assert found == expected * 5
    assert shared.training


def test_modules_of_other_threads_are_no_part_of_a_network():
    other, stop = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), threading.Event()

    def work():
        while not stop.is_set():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert other(torch.zeros(SHAPE)).dtype == torch.bfloat16

    thread = threading.Thread(target=work)
    thread.start()
    try:
        networks = [joulecast.extract(Deep(4), SHAPE) for _ in range(10)]
    finally:
        stop.set()
        thread.join()
    assert set(networks[0].entries[0].module_paths) == {f"layers.{i}" for i in range(4)}
    assert all(network == networks[0] for network in networks)
