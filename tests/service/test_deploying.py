"""The files in deploy/ agree with each other, the command line, and the paths and numbers of the service."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from joulecast.cli.serve import serve

yaml = pytest.importorskip("yaml", reason="the files are read by PyYAML, which the documentation needs")
pytest.importorskip("fastapi", reason="the service needs joulecast[service]")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def options():
    return {"--" + name.replace("_", "-") for name in serve.__annotations__}


def variables():
    return {f"JOULECAST_SERVE_{name.upper()}" for name in serve.__annotations__}


@pytest.fixture(scope="module")
def kubernetes():
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def test_the_image_copies_what_the_wheel_includes():
    folders = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    copied = {line.split()[1] for line in (DEPLOY / "Containerfile").read_text().splitlines() if line[:5] == "COPY "}
    assert {*folders["packages"], *folders["force-include"]} <= copied


def test_compose_limits_the_service():
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["joulecast"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert {word for word in service["command"] if word.startswith("--")} <= options()
    assert service["environment"].keys() <= variables()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["ports"] == ["127.0.0.1:8000:8000"]  # not open to other machines
    assert any("/v1/ready" in word for word in service["healthcheck"]["test"])


def test_kubernetes_limits_the_service(kubernetes):
    pod = kubernetes["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {word for word in container["args"] if word.startswith("--")} <= options()
    assert {each["name"] for each in container["env"]} <= variables()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["resources"]["limits"].keys() == container["resources"]["requests"].keys() == {"cpu", "memory"}
    # The root is read-only, so whatever is written needs a volume.
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted.keys() == {each["name"] for each in pod["volumes"]}
    assert {"/var/cache/joulecast", "/tmp"} <= set(mounted.values())  # noqa: S108  (of the container)


NAME = re.compile(r"\b(?:joulecast|process)_[a-z_]+")


@pytest.fixture(scope="module")
def asking():
    """A client of a real service."""
    from starlette.testclient import TestClient

    from joulecast.service.app import create_app

    return TestClient(create_app())


@pytest.fixture(scope="module")
def exported(asking) -> dict[str, set[str]]:
    """Name of each number of a real service -> its labels."""
    asking.get("/v1/version")
    text = asking.get("/metrics").text
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


def test_usual_paths_answer_as_those_with_a_version(asking):
    assert asking.get("/openapi.json").json() == asking.get("/v1/openapi.json").json()
    assert "/metrics" not in asking.get("/openapi.json").json()["paths"]
    assert asking.get("/metrics").headers["content-type"] == asking.get("/v1/metrics").headers["content-type"]
