"""The questions that clients may send as query strings: those about a model by name whose parts are plain texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ..operations.inputs import parse_shapes
from .problems import invalid
from .question_fields import Name, Precision, Price, up_to
from .questions import PATHS

Format = Literal["json", "csv"]


class Query(BaseModel):
    """A subject in a query string. A shape is written as 32,3,224,224; for several inputs the parameter is repeated."""

    model_config = ConfigDict(extra="forbid")

    model: Name = Field(examples=["resnet50"])
    input_shape: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=16)] = Field(
        description="Such as 32,3,224,224. For several inputs repeat it, or write input_ids=8,128.",
        examples=[["32,3,224,224"]],
    )
    format: Format | None = Field(None, description="json or csv; the header Accept works as well.")

    def question(self, kind: type[Any]) -> Any:
        """The question that a body would hold.

        Raises InputError, RefusalError: A text is not a shape, or the schema has no such value.
        """
        shape = _plain(parse_shapes(self.input_shape))
        given = self.model_dump(exclude_none=True, exclude={"format", "input_shape"})
        try:
            return kind(**given, input_shape=shape)
        except ValidationError as error:
            raise invalid(error, "query") from error


_ONLY_IN_BODIES = {"operations", "name", "dropped", "assumptions", "assume", "model_options", "tree", "calibration"}
_AS_TEXTS = {  # prices by GPU need a body
    "precision": (Annotated[list[Precision], up_to(5)] | None, None),
    "price_per_hour": (Price | None, None),
}


def _query(name: str, question: type[BaseModel]) -> Any:
    """The class of query strings that hold a question, but for what is no plain text."""
    fields: dict[str, Any] = {}
    for field, info in question.model_fields.items():
        if field not in _ONLY_IN_BODIES and field not in Query.model_fields:
            several = field in _AS_TEXTS and "gpus" in question.model_fields
            fields[field] = _AS_TEXTS[field] if several else (info.annotation, info)
    return create_model(name, __base__=Query, __doc__=f"A {question.__name__} in a query string.", **fields)


QUERIES = {
    name: _query(path.question.__name__.replace("Question", "Query"), path.question)
    for name, path in PATHS.items()
    if path.by_name
}
"""Name of a path -> the class of its query strings."""


def _plain(shape: Any) -> Any:
    """Turn tuples into lists, as JSON would hold them."""
    if isinstance(shape, dict):
        return {name: list(item) for name, item in shape.items()}
    return [list(item) if isinstance(item, Sequence) else item for item in shape]
