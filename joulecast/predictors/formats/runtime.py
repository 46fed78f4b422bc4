"""ONNX Runtime, imported without its telemetry."""

from __future__ import annotations

import os
import sys
from types import ModuleType

_SWITCH = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime without its telemetry.

    Unless an environment variable turns that off at the moment of the import, importing it writes a device id into the
    home folder, and looks up a host of Microsoft.
    """
    if "onnxruntime" in sys.modules:
        return sys.modules["onnxruntime"]
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "1"
    try:
        import onnxruntime
    finally:
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before
    onnxruntime.disable_telemetry_events()
    found: ModuleType = onnxruntime
    return found
