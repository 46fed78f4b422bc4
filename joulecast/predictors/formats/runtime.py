"""ONNX Runtime, imported without its telemetry."""

from __future__ import annotations

import os
import sys
from types import ModuleType

_SWITCH = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime so that it tells nobody.

    Importing it writes the id of a device into the home folder and looks up a host of Microsoft's, unless a variable of
    the environment says otherwise at that moment.
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
