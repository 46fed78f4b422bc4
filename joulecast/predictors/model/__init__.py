"""The one model of an operation: work, physics, and what measurements of all GPUs, a generation and a chip add.

    ln t = ln physics(work) + what holds on all GPUs + what this chip adds

`work` says how an operation is done, as kernels in columns. `physics` gives the least time of kernels on a GPU from its
data sheet. `features` describe the same kernels relative to the GPU, and `learned` adds what trees learned from them.
"""
