"""Language models that are served by engines: fused steps of a decoder, batching, and several GPUs.

`fusing` finds the parts of a decoder in its extracted operations, `steps` lists the operations that an engine runs for
the tokens of one step, `serving` counts the steps that requests need, and `server` predicts them and adds them up.
"""
