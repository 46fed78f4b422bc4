"""Schemas of the listings and of the service's own state, for the OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .schemas import Open


class GpuSummary(Open):
    """A GPU of the catalogue."""

    name: str
    short_name: str
    aliases: list[str]
    architecture: str
    memory_bytes: int
    memory_bandwidth: float
    min_clock_mhz: float
    boost_clock_mhz: float
    max_clock_mhz: float
    power_limit_w: float
    precisions: list[str]
    measured: str | None = Field(description="What was measured on it; null if nothing was.")
    predictors: list[str] = Field(description="Its own predictors. A GPU without any is predicted from its data sheet.")


class HostAnswer(Open):
    """A host that is known by name."""

    name: str
    factor: float = Field(description="Seconds to launch an operation over those of the reference host.")
    source: str


class GridAnswer(Open):
    """The electricity of a country, averaged over a year."""

    code: str = Field(examples=["DE"])
    name: str
    carbon_g_per_kwh: float


class ExecutionAnswer(Open):
    """How a network can be run, on which hosts, by which engines, and on which grids."""

    executions: list[str] = Field(examples=[["eager", "graph"]])
    hosts: list[HostAnswer]
    engines: list[str] = Field(description="Engines that serve language models.")
    grids: list[GridAnswer]


class GpusAnswer(Open):
    """The catalogue."""

    gpus: list[GpuSummary]


class GpuAnswer(GpuSummary):
    """All figures of a GPU, with their sources."""

    sources: list[str]


class ModelAnswer(Open):
    """A model that has a name."""

    name: str
    family: Literal["image", "tokens", "features"]
    input_shape: list[int] = Field(description="An input shape that it accepts.")
    input_names: list[str]


class ModelsAnswer(Open):
    """Models that need no torch. Other models of torchvision, timm and transformers need it."""

    models: list[ModelAnswer]
    language_models: list[str] = Field(description="Models that /v1/predict_generation knows.")
    pipelines: list[str] = Field(description="Pipelines that /v1/predict_image knows.")
    others: bool = Field(description="Whether this service can extract models without a template.")


class ZooAnswer(Open):
    """Names of the predictors."""

    entries: list[str]


class CardAnswer(Open):
    """A model card."""

    name: str


class HealthAnswer(Open):
    """That the process runs, and its number."""

    status: str
    process: int


class VersionAnswer(Open):
    """The version of joulecast, and the state of the predictors."""

    joulecast: str
    python: str
    generation: str = Field(description="Changes whenever the predictors change.")
