"""Models in files: `torch.export` programs and ONNX graphs. No code of a file is run."""
