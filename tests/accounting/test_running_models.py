"""Real models on the CPU: whose modules get the time of operators, in forward and backward."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from joulecast.accounting.account import Account, account  # noqa: E402
from joulecast.errors import ExtractionError, InputError, UnknownNameError  # noqa: E402

QUICK = {"loop_s": 0.01, "profiled_iterations": 2, "sensors": ()}
MOST = 0.99


class Recurrent(nn.Module):
    """An LSTM with a classifier."""

    input_dtype = "float32"

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.classifier = nn.LSTM(32, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.classifier(self.lstm(x)[0][:, -1])


class Swish(torch.autograd.Function):
    """An operator of the user's own, in Python."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        s = x.sigmoid()
        return gradient * (s + x * s * (1 - s))


class Custom(nn.Module):
    """What makes accounting hard: own operators and parameters, weight norm, checkpoints, one module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)
        self.twice = nn.Linear(64, 64)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
        self.layer = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True)

    def forward(self, x):
        x = Swish.apply(x @ self.weight)
        x = self.twice(x) + checkpoint(self.twice, x, use_reentrant=False)
        return self.layer(self.normed(x))


def resnet50():
    from joulecast.extraction.models.torchvision_models import build

    return build("resnet50", weights=True), (1, 3, 64, 64)


def transformer(class_name, config_name, **sizes):
    from joulecast.extraction.models.transformers_models import import_transformers

    pytest.importorskip("transformers")
    library = import_transformers()
    config = getattr(library, config_name)(
        hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=100, **sizes
    )
    return getattr(library, class_name)(config), (4, 64)


MODELS = {
    "ResNet-50": resnet50,
    "BERT": lambda: transformer("BertModel", "BertConfig"),
    "Llama": lambda: transformer("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2),
    "LSTM": lambda: (Recurrent(), (4, 20, 32)),
    "custom": lambda: (Custom(), (4, 16, 64)),
}


@pytest.mark.parametrize(("mode", "phases"), [("training", {"forward", "backward"}), ("inference", {"forward"})])
@pytest.mark.parametrize("name", MODELS)
def test_nearly_all_time_of_operators_belongs_to_the_modules_of_the_model(name, mode, phases):
    torch.manual_seed(0)
    model, shape = MODELS[name]()
    # The machine may interrupt the process in one of the few operators outside of modules, so one run of five suffices.
    runs = (account(model, shape, mode=mode, **QUICK) for _ in range(5))
    found = next((run for run in runs if all(run.module_share[phase] >= MOST for phase in phases)), None)
    assert found is not None
    assert set(found.stages()) == phases
    # Autograd itself adds up the gradients of two outputs, outside of all nodes.
    parts = dict(model.named_modules())
    assert {row.path for row in found.rows} <= {*parts, "(no module)"}
    of_forward, of_backward = ({r.path for r in found.rows if r.phase == p} for p in ("forward", "backward"))
    layers = {
        path for path in of_forward if isinstance(parts.get(path), nn.Linear | nn.Conv2d | nn.LSTM | nn.Embedding)
    }
    assert layers
    # BERT's pooler has a gradient only if its output is used.
    assert mode == "inference" or layers - of_backward <= {"pooler.dense"}


def test_accumulated_gradients_go_to_the_module_of_their_parameter():
    """Against the parameters themselves: hooks tell the order in which their gradients arrive."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 8, bias=False)), nn.LSTM(8, 8))
    owner = {id(p): path for path, part in model.named_modules() for p in part.parameters(recurse=False)}
    arrived = []
    hooks = [p.register_post_accumulate_grad_hook(lambda p: arrived.append(owner[id(p)])) for p in model.parameters()]
    found = account(model, (4, 5, 8), mode="training", loop_s=0.001, profiled_iterations=1, sensors=())
    for hook in hooks:
        hook.remove()
    last = arrived[-len(list(model.parameters())) :]
    events = found.events
    order = events.start_s.argsort()
    places = [events.places[i] for i in events.place[order]]
    assert [place.path for place in places if place.operation == "AccumulateGrad"] == last


@pytest.mark.parametrize(("mode", "optimizer"), [("inference", None), ("training", None), ("training", "adamw")])
def test_a_model_runs_in_the_mode_that_is_asked_for_and_is_left_as_it_was(mode, optimizer):
    seen = set()

    class Telling(nn.Linear):
        def forward(self, x):
            seen.add(self.training)
            return super().forward(x)

    model = nn.Sequential(Telling(8, 8), nn.Dropout())
    model[1].eval()
    # Hooks of the user belong to the module that has them.
    model[1].register_forward_pre_hook(lambda module, given: (torch.cumsum(given[0], 0),))
    model[0].register_forward_hook(lambda module, given, result: torch.flip(result, (0,)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = account(model, (2, 8), mode=mode, optimizer=optimizer, **QUICK)
    assert seen == {mode == "training"}
    phases = {"forward", *(["backward"] if mode == "training" else []), *(["optimizer"] if optimizer else [])}
    assert set(found.stages()) == phases
    by_operation = {row.operation: row.path for row in found.rows}
    assert (by_operation["aten::cumsum"], by_operation["aten::flip"]) == ("1", "0")
    assert not any("_compiled_call_impl" in part.__dict__ for part in model.modules())
    assert (model.training, model[1].training) == (True, False)
    assert all(parameter.grad is None for parameter in model.parameters())
    if optimizer is None:  # whose steps change parameters
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()] == [0, 1, 1]


def test_a_compiled_model_is_noted_to_be_one_module():
    class Compiled(nn.Module):
        """What torch.compile gives, without a compiler: a wrapper whose parts are not called by themselves."""

        def __init__(self, module) -> None:
            super().__init__()
            self._orig_mod, self.dynamo_ctx = module, None

        def forward(self, x):
            with torch.profiler.record_function("Torch-Compiled Region: 0/0"):
                return self._orig_mod.forward(x)

    found = account(
        nn.Sequential(Compiled(nn.Sequential(nn.Linear(8, 8), nn.ReLU())), nn.Linear(8, 8)), (4, 8), **QUICK
    )
    assert {row.path for row in found.rows} == {"0", "1"}
    assert any("fused kernels" in note for note in found.notes)


def test_steps_of_the_user_in_one_pass():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Account(model, sensors=()) as running:
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(torch.randn(8, 32)), torch.zeros(8, 32)).backward()
            optimizer.step()
    found = running.result()
    assert found.iterations == 3
    assert {"forward", "backward", "optimizer"} == set(found.stages())
    assert "aten::mse_loss" in {row.operation for row in found.rows if row.path == "(no module)"}
    assert found.tree().at("0", "backward").total.time_s > 0


def test_an_error_of_the_users_code_is_raised_unchanged_and_one_profiler_runs_at_a_time():
    running = Account(nn.Linear(4, 4), sensors=())
    with pytest.raises(ZeroDivisionError), running:
        1 / 0  # noqa: B018
    with pytest.raises(InputError, match="nothing is accounted yet"):
        running.result()
    with running:
        torch.relu(torch.ones(1))
    assert running.result().iterations == 1
    with pytest.raises(ZeroDivisionError), running:
        1 / 0  # noqa: B018
    with pytest.raises(InputError, match="nothing is accounted yet"):
        running.result()
    assert running._module.__dict__.get("_compiled_call_impl") is None
    with torch.profiler.profile(), pytest.raises(InputError, match="two profilers"):
        account(nn.Linear(4, 4), (2, 4), **QUICK)


class Failing(nn.Module):
    def forward(self, x):
        return {}["missing"]


def test_a_model_is_trained_where_gradients_are_switched_off():
    with torch.no_grad():
        assert "backward" in account(nn.Linear(4, 4), (2, 4), mode="training", **QUICK).stages()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"module": Failing()}, ExtractionError, "the model raises KeyError"),
        ({"module": "resnet50"}, InputError, "not a module"),
        ({"mode": "trainig"}, UnknownNameError, "did you mean training"),
        ({"device": "cuda:9"}, InputError, "not available|no such GPU"),
        ({"inputs": (2, 5)}, ExtractionError, "mat1 and mat2"),
        ({"inputs": "2,4"}, InputError, "not an input|input"),
        ({"optimizer": "lion", "mode": "training"}, UnknownNameError, "optimizer"),
        ({"loop_s": 0}, InputError, "loop_s is out of range"),
        ({"profiled_iterations": 0}, InputError, "1 or more"),
        ({"sensors": ("gpu7",)}, UnknownNameError, "device"),
        ({"module": nn.Linear(4, 4).requires_grad_(False), "mode": "training"}, InputError, "requires a gradient"),
    ],
)
def test_bad_input_is_one_clear_error(given, error, words):
    arguments = {"module": nn.Linear(4, 4), "inputs": (2, 4), **QUICK, **given}
    with pytest.raises(error, match=words):
        account(**arguments)
