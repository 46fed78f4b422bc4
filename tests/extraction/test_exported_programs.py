"""Programs of torch.export have the same operations as their module, and no code of a file is run."""

import json
import pickle
import zipfile

import pytest
import torch
from modules import module
from torch import nn

import joulecast
from joulecast.errors import ExtractionError, InputError
from joulecast.extraction import network_of

# The exporter itself raises deprecation warnings.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5))

    def forward(self, x, *, scale):
        y = self.conv(x).mean((2, 3))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.head[0](torch.cat([y, y.view(x.shape[0], -1)], 1))
        first, second = torch.split(self.head[1](y.float()) * scale, (2, 3), 1)
        return {"first": first.relu(), "second": second.masked_fill(second > 1, float("-inf"))}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("exported") / "model.pt2"
    x, scale = torch.randn(2, 3, 8, 8), torch.ones(5)
    shapes = {"x": {0: torch.export.Dim("batch", min=2)}, "scale": None}
    program = torch.export.export(Model().eval(), (x,), {"scale": scale}, dynamic_shapes=shapes, strict=False)
    torch.export.save(program, target)
    return target


@pytest.mark.parametrize(
    ("batch", "shapes", "mode"),
    [(2, None, "inference"), (7, [(7, 3, 8, 8), (5,)], "training")],
    ids=["its own", "other"],
)
def test_a_program_has_the_operations_of_its_module(path, batch, shapes, mode):
    of_module = network_of(Model(), {"x": (batch, 3, 8, 8), "scale": (5,)}, mode=mode)
    program = joulecast.extract(path, shapes, mode=mode)
    assert program.name == "model"
    assert program.input_shape == {"x": (batch, 3, 8, 8), "scale": (5,)}
    assert not of_module.diff(program)
    assert [e.module_paths for e in program] == [e.module_paths for e in of_module]
    assert {e.operation.precision for e in program if e.operation.kind == "linear"} == {"bf16"}


def test_a_region_without_gradients_has_no_backward(tmp_path):
    def forward(self, x):
        with torch.no_grad():
            x = self.first(x)
        return self.last(x)

    layers = module(forward, first=torch.nn.Linear(8, 8), last=torch.nn.Linear(8, 8))
    program = torch.export.export(layers, (torch.randn(2, 8),))
    torch.export.save(program, tmp_path / "part.pt2")
    network = joulecast.extract(tmp_path / "part.pt2", (2, 8), mode="training")
    found = {e.operation.gradients: e.count for e in network if e.operation.kind == "linear"}
    assert found == {"none": 1, "parameters": 1}


def test_a_program_that_is_loaded_already():
    module = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Dropout())
    program = torch.export.export(module.eval(), (torch.randn(2, 8),))
    assert not network_of(module, (2, 8)).diff(joulecast.extract(program, (2, 8)))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ([(2, 3, 8, 9), (5,)], "exported with other sizes of x"),
        ((2, 3, 8, 8), "other inputs"),
        ({"y": (2,)}, "other inputs"),
    ],
)
def test_inputs_are_refused_that_the_program_was_not_exported_for(path, shape, says):
    with pytest.raises(InputError, match=says):
        joulecast.extract(path, shape)


def changed(path, target, change):
    """A copy of a file whose members a function changes; it gets name and content, and returns None to drop one."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


class Evil:
    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


def test_nothing_is_unpickled(path, tmp_path):
    def poison(name, content):
        return pickle.dumps(Evil()) if name.endswith((".pt", "weight_0")) or "constants" in name else content

    poisoned = changed(path, tmp_path / "poisoned.pt2", poison)
    assert joulecast.extract(poisoned).entries == joulecast.extract(path).entries


def edited(path, target, edit):
    def change(name, content):
        if "/models/" not in name:
            return content
        program = json.loads(content)
        edit(program)
        return json.dumps(program)

    return changed(path, target, change)


@pytest.mark.parametrize(
    "function",
    ["torch.hub.load", "torch.ops.aten.from_file.default", "builtins.exec", "torch.ops.load_library", "_operator.call"],
)
def test_only_operators_are_run(path, tmp_path, function):
    def edit(program):
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"], node["inputs"] = function, [{"name": "x", "arg": {"as_string": "x"}, "kind": 1}]

    with pytest.raises(ExtractionError, match=r"operator of this program"):
        joulecast.extract(edited(path, tmp_path / "edited.pt2", edit))


def test_damaged_files_and_those_of_other_versions(path, tmp_path):
    content = path.read_bytes()
    for name, damaged in {"cut": content[: len(content) // 2], "text": b"hello", "empty": b""}.items():
        (tmp_path / f"{name}.pt2").write_bytes(damaged)
    changed(path, tmp_path / "without.pt2", lambda name, data: None if "/models/" in name else data)
    edited(path, tmp_path / "graph.pt2", lambda program: program["graph_module"].pop("signature"))
    edited(path, tmp_path / "newer.pt2", lambda program: program["schema_version"].update(major=99))
    for name, says in {
        **dict.fromkeys(("cut", "text", "empty", "nowhere"), "cannot be read"),
        "without": "holds no exported program",
        "graph": "damaged",
        "newer": r"torch\.export\.load",
    }.items():
        with pytest.raises(InputError, match=says):
            joulecast.extract(tmp_path / f"{name}.pt2")
