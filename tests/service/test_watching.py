"""The dashboard and the alerts in deploy/ ask for numbers that the service exports, and for nothing else."""

import json
import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="the rules are read by PyYAML, which the documentation needs")
pytest.importorskip("fastapi", reason="the service needs joulecast[service]")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = re.compile(r"\b(?:joulecast|process)_[a-z_]+")


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Name of each number of a real service -> its labels."""
    from starlette.testclient import TestClient

    from joulecast.service.app import create_app

    client = TestClient(create_app())
    client.get("/v1/version")
    text = client.get("/metrics").text
    assert re.sub(r"[0-9.e+-]+$", "", text, flags=re.M).count("\n") > 20
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"(\w+)(\{.*\})?", line).groups()
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    return found


def rules() -> list[dict]:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    return group["rules"]


def panels() -> list[dict]:
    return json.loads((DEPLOY / "grafana.json").read_text())["panels"]


def test_every_question_is_about_numbers_that_are_exported(exported):
    asked = [rule["expr"] for rule in rules()] + [each["expr"] for panel in panels() for each in panel["targets"]]
    assert len(asked) > 15
    for expression in asked:
        assert expression.count("(") == expression.count(")")
        names = NAME.findall(expression)
        assert names
        for name in names:
            assert name in exported, f"{expression}: {name} is not exported"
        # Labels that a question selects or sums by are those of the number, or Prometheus' own.
        labels = set(re.findall(r"(\w+)=~?\"", expression)) | set(
            re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression)))
        )
        assert labels <= set().union(*(exported[name] for name in names)) | {"instance"}


def test_rules_and_panels_are_complete():
    for rule in rules():
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in panels()]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels())
    assert len({panel["id"] for panel in panels()}) == len(places)


def test_usual_paths_answer_as_those_with_a_version():
    from starlette.testclient import TestClient

    from joulecast.service.app import create_app

    client = TestClient(create_app())
    assert client.get("/openapi.json").json() == client.get("/v1/openapi.json").json()
    assert "/metrics" not in client.get("/openapi.json").json()["paths"]
    assert client.get("/metrics").headers["content-type"] == client.get("/v1/metrics").headers["content-type"]
