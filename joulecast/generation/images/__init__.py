"""What images and videos cost that diffusion models make: pipelines of `diffusers`, from their configurations alone.

`layers` records operations, `encoders`, `denoisers` and `autoencoders` say what the parts of a pipeline run,
`pipelines` has the configurations, and `predict` adds up text, steps and decoding.
"""
