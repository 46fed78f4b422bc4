"""How what was learned is written and read: safetensors, numbers in JSON, Protocol Buffers, messages of ONNX.

What files may hold, and what is refused, changes here. Nothing here knows what the numbers mean, and no other room is
imported.
"""
