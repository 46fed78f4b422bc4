"""The questions that clients may send as query strings: those about a model by name whose parts are plain texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..operations.inputs import parse_shapes
from .problems import invalid
from .subjects import (
    LARGEST,
    Clock,
    Composition,
    HostFactor,
    HowRun,
    Mode,
    Name,
    Objective,
    Optimizer,
    Positive,
    Precision,
    Price,
    Subject,
)

TextSize = Annotated[int, Field(ge=1, le=LARGEST)]
Format = Literal["json", "csv"]

_Question = TypeVar("_Question", bound=Subject)


class _Query(BaseModel):
    """A subject in a query string. A shape is written as 32,3,224,224; for several inputs the parameter is repeated."""

    model_config = ConfigDict(extra="forbid")

    model: Name = Field(examples=["resnet50"])
    input_shape: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=16)] = Field(
        description="Such as 32,3,224,224. For several inputs repeat it, or write input_ids=8,128.",
        examples=[["32,3,224,224"]],
    )
    mode: Mode = "inference"
    cache_length: TextSize | None = None
    optimizer: Optimizer | None = None
    format: Format | None = Field(None, description="json or csv; the header Accept works as well.")

    def question(self, kind: type[_Question]) -> _Question:
        """Turn the query into the question that a body would hold.

        Raises:
            InputError: A text is not a shape.
            RefusalError: The question does not fit the schema.
        """
        shape = _plain(parse_shapes(self.input_shape))
        given = self.model_dump(exclude_none=True, exclude={"format", "input_shape"})
        try:
            return kind(**given, input_shape=shape)
        except ValidationError as error:
            raise invalid(error, "query") from error


class PredictQuery(_Query):
    """See PredictQuestion."""

    precision: Precision = "default"
    gpu: Name = Field(examples=["A30"])
    clock_mhz: Clock | None = None
    power_limit_w: Positive | None = None
    predictor: Name | None = None
    execution: HowRun = "eager"
    host: HostFactor | Name | None = None
    composition: Composition | None = None
    strict: bool = False


class SweepQuery(_Query):
    """A SweepQuestion in a query string. Prices by GPU need a body."""

    objective: Objective = "energy"
    gpus: Annotated[list[Name], Field(max_length=100)] | None = None
    clocks_mhz: Annotated[list[Clock], Field(max_length=1000)] | None = None
    power_limit_w: Positive | None = None
    precision: Annotated[list[Precision], Field(max_length=5)] | None = None
    batch_sizes: Annotated[list[TextSize], Field(min_length=1, max_length=100)] | None = None
    predictor: Name | None = None
    execution: HowRun = "eager"
    host: HostFactor | Name | None = None
    price_per_hour: Price | None = None
    price_per_kwh: Price | None = None
    carbon: Price | Name | None = None


class BestQuery(SweepQuery):
    """See BestQuestion."""

    max_time_s: Positive | None = None
    max_power_w: Positive | None = None


class ExtractQuery(_Query):
    """See ExtractQuestion."""

    precision: Precision = "default"


def _plain(shape: Any) -> Any:
    """Turn tuples into lists, as JSON would hold them."""
    if isinstance(shape, dict):
        return {name: list(item) for name, item in shape.items()}
    return [list(item) if isinstance(item, Sequence) else item for item in shape]
