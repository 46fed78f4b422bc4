"""Formats in which trained predictors are stored: safetensors, numbers in JSON, Protocol Buffers, messages of ONNX.

This package decides what files may contain. It does not depend on the meaning of the numbers, and imports no other
package of `predictors`.
"""
