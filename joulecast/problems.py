"""What the errors of the library are called over HTTP, in the type of a problem (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import (
    DatasetError,
    ExtractionError,
    InputError,
    JoulecastError,
    MissingDependencyError,
    UncoveredError,
    UnknownNameError,
    ZooError,
)

TYPE_PREFIX = "urn:joulecast:problem:"

ERROR_CLASSES: Mapping[str, type[JoulecastError]] = {
    "unknown-name": UnknownNameError,
    "input": InputError,
    "extraction": ExtractionError,
    "uncovered": UncoveredError,
    "missing-dependency": MissingDependencyError,
    "dataset": DatasetError,
    "zoo": ZooError,
}
"""Name -> class, the most special first: an error is called by the first that it is one of."""
