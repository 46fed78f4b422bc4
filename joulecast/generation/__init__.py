"""What serving engines run when they generate: fused steps of a decoder, batching, and several GPUs.

`fusing` reads the parts of a decoder off its extracted operations, `steps` lists what an engine of `engines` runs for
the tokens of one step, and `serving` adds steps up to requests.
"""
