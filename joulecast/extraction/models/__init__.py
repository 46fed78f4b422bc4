"""Models by name or configuration: torchvision's, timm's and transformers'."""
