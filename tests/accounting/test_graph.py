"""The energy dependency graph: nodes are modules with their joules, edges the tensors that flow between them."""

import json
import xml.etree.ElementTree as ET

import pytest

import joulecast
from conftest import benchmark
from joulecast.energy import EnergyTree, Figure, Row, Share
from joulecast.errors import InputError

torch = pytest.importorskip("torch")

with benchmark("energy_graph") as module:
    INPUT, energy_graph = module.INPUT, module.energy_graph


class Residual(torch.nn.Module):
    """A layer, a second one, and the sum of both outputs, which belongs to the model itself."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        once = self.first(x)
        return once + self.second(once)


def tree(**joules):
    rows = [
        Row(path, Share({"cpu": Figure(2 * j, "measured")}, {("cpu", "total"): Figure(j, "measured")}), "op", phase)
        for path, j in joules.items()
        for phase in ("forward", "backward")
    ]
    return EnergyTree.of("model", rows)


@pytest.fixture(scope="module")
def graph():
    return energy_graph(Residual(), (4, 8), tree(first=3.0, second=5.0))


def test_edges_are_the_tensors_that_flow_and_nodes_have_the_joules_of_both_phases(graph):
    assert {(edge.source, edge.target): (edge.tensors, edge.size_bytes) for edge in graph.edges} == {
        (INPUT, "first"): (1, 128),  # 4 x 8 in fp32
        ("first", "second"): (1, 128),
        ("first", "(model)"): (1, 128),
        ("second", "(model)"): (1, 128),
    }
    found = {node.name: (node.energy_j, node.time_s) for node in graph.nodes}
    assert found == {INPUT: (None, None), "first": (6, 12), "second": (10, 20), "(model)": (None, None)}
    assert [node.name for node in graph.nodes] == [INPUT, "first", "second", "(model)"]


def test_it_is_written_as_graphml_json_and_svg(graph, tmp_path):
    root = ET.parse(graph.save(tmp_path / "graph.graphml")).getroot()  # noqa: S314  (our own file)
    space = "{http://graphml.graphdrawing.org/xmlns}"
    assert {node.get("id") for node in root.iter(f"{space}node")} == {node.name for node in graph.nodes}
    assert len(list(root.iter(f"{space}edge"))) == 4
    second = next(node for node in root.iter(f"{space}node") if node.get("id") == "second")
    assert {data.get("key"): float(data.text) for data in second}["energy_j"] == 10
    assert json.loads(graph.save(tmp_path / "graph.json").read_text())["edges"][0]["source"] == INPUT
    drawn = ET.parse(graph.save(tmp_path / "graph.svg")).getroot()  # noqa: S314
    assert len([each for each in drawn if each.tag.endswith("path")]) == 4
    with pytest.raises(InputError, match=r"\.graphml"):
        graph.save(tmp_path / "graph.txt")
    name = "a\"'&]]><img src=x>"  # whatever modules are called
    hostile = module.EnergyGraph(name, (module.GraphNode(name, 1), module.GraphNode("b", 1)), ())
    for text in (hostile.to_graphml(), hostile.to_svg()):
        assert "img" not in {each.tag for each in ET.fromstring(text).iter()}  # noqa: S314


def test_a_prediction_gives_the_joules_as_well():
    module = Residual()
    predicted = joulecast.predict(module, (4, 8), "A30", mode="training")
    found = {node.name: node.energy_j for node in energy_graph(module, (4, 8), predicted).nodes}
    assert found["first"] > 0
    assert sum(joules for joules in found.values() if joules) == pytest.approx(predicted.energy_j, rel=0.05)
