"""Images and videos from diffusion models: pipelines of `diffusers`, whose parts were traced once.

`parts` reads the templates of text encoders, denoisers and decoders, `decoders` says in which pieces latents are
decoded, `pipelines` has the configurations, `sequence_parallel` divides a denoiser among GPUs, and `predict` adds up
text encoders, denoising steps and decoding.
"""
