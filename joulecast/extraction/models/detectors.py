"""Training of torchvision's detectors, which also needs the boxes of each image as an input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..known_values import without_memory

if TYPE_CHECKING:
    from ..tracing import Forward

_LIBRARY = "torchvision.models.detection"


def is_detector(module: torch.nn.Module) -> bool:
    """Whether a module is one of torchvision's detectors, or of a class derived from one."""
    return any(cls.__module__.startswith(_LIBRARY) for cls in type(module).__mro__) and hasattr(module, "transform")


def prepare_training(forward: Forward, boxes: int | None) -> None:
    """Give each image of a batch boxes to train on. Each has a quarter of the image's sides, and lies on its diagonal.

    The forward is that of a detector on images of shape (images, channels, height, width); None stands for no boxes.
    """
    if boxes is not None and forward.args:
        forward.kwargs["targets"] = [_target(forward.module, forward.args[0], boxes) for _ in forward.args[0]]


def _target(module: torch.nn.Module, images: torch.Tensor, boxes: int) -> dict[str, torch.Tensor]:
    """The targets of one image."""
    height, width = images.shape[-2:]
    sides = torch.tensor([width, height, width, height])
    first = torch.linspace(0.0, 0.75, boxes)[:, None]
    corners = torch.cat([first, first, first + 0.25, first + 0.25], dim=1) * sides
    found: dict[str, Any] = {"boxes": corners, "labels": torch.ones(boxes, dtype=torch.int64)}
    heads = getattr(module, "roi_heads", None)
    if getattr(heads, "mask_predictor", None) is not None:
        found["masks"] = torch.zeros(boxes, height, width, dtype=torch.uint8)
    if (predictor := getattr(heads, "keypoint_predictor", None)) is not None:
        found["keypoints"] = torch.ones(boxes, predictor.out_channels, 3)
    return {name: without_memory(value) for name, value in found.items()}
