"""Rows of the table of kinds for operations with indices or masks: look-ups, scattering, masking and sorting."""

from __future__ import annotations

from collections.abc import Mapping

from . import indexing, rules, storage
from .attributes import COUNT, DIMENSION, FLAG, Attribute
from .kind import Kind, Traffic
from .rows import looking_up

INDEX_KINDS: Mapping[str, Kind] = {
    # A mask and two values for each element. Backward: the gradient of each value is that of the output, or zero.
    "where": Kind(
        family="elementwise",
        inputs=(1, 3),
        output=rules.broadcast_inputs,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=1, output=2),
        training_writes=Traffic(output=3),
        storage=storage.of_mask(0),
    ),
    # Works in place; operators that do not are extracted with a copy before. The backward fills a copy of the gradient.
    "masked_fill": Kind(
        family="elementwise",
        inputs=(2, 2),
        output=indexing.masked_fill_output,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=3),
        storage=storage.of_mask(1),
    ),
    "embedding_bag": Kind(
        family="movement",
        inputs=(2, 2),
        attributes={"num_embeddings": Attribute(COUNT), "embedding_dim": Attribute(COUNT)},
        output=indexing.embedding_bag_output,
        flops=indexing.embedding_bag_flops,
        parameters=indexing.embedding_parameters,
        storage=storage.bags,
        reads=Traffic(inputs=1),
        # The backward writes a gradient of zeros for the whole table, and adds to the rows that were looked up.
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=1, parameters=1, workspace=1),
    ),
    "gather": looking_up(indexing.gather_output),
    "index_select": looking_up(indexing.index_select_output),
    # Works in place, like masked_fill. In the backward, the gradient of the source is looked up.
    "scatter": Kind(
        family="movement",
        inputs=(3, 3),
        attributes={"accumulate": Attribute(FLAG, False)},
        output=indexing.scatter_output,
        flops=indexing.scatter_flops,
        backward_flops=0.0,
        reads=Traffic(inputs=1),
        training_reads=Traffic(inputs=2, workspace=1),
        training_writes=Traffic(output=2, workspace=1),
        storage=storage.scattered,
    ),
    # Writes zeros, then a one for each class index.
    "one_hot": Kind(
        family="movement",
        attributes={"num_classes": Attribute(COUNT)},
        output=indexing.one_hot_output,
        has_gradient=False,
        writes=Traffic(inputs=1, output=1),
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(inputs=1, output=1),
        storage=storage.one_hot,
    ),
    # The backward writes zeros, and then each gradient to the original position of its value.
    "sort": Kind(
        family="movement",
        attributes={"dim": Attribute(DIMENSION, -1)},
        output=rules.same_along_dimension,
        flops=indexing.sort_flops,
        backward_flops=0.0,
        reads=Traffic(inputs=1, workspace=1),
        writes=Traffic(output=1, workspace=1),
        training_reads=Traffic(inputs=1, output=1, workspace=1),
        training_writes=Traffic(inputs=2, output=1, workspace=1),
        storage=storage.ranked,
    ),
    "topk": Kind(
        family="movement",
        attributes={"k": Attribute(COUNT), "dim": Attribute(DIMENSION, -1)},
        output=indexing.topk_output,
        flops=rules.per_input_element(1),
        backward_flops=0.0,
        # A radix select finds the k-th largest value, eight bits per pass; one more pass gathers all values that are
        # larger (TensorTopK.cu of PyTorch).
        reads=Traffic(inputs=5),
        training_reads=Traffic(inputs=5, output=1),
        training_writes=Traffic(inputs=1, output=2),
        storage=storage.largest,
    ),
}
