"""Images and videos from diffusion models: pipelines of `diffusers`, described by their configurations alone.

`layers` records operations, `denoisers`, `joint_denoisers` and `decoders` list those of the parts of a pipeline,
`pipelines` has the configurations, and `predict` adds up text encoders, denoising steps and decoding.
"""
