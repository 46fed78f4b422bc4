"""Rows of the table of kinds for what an index, a mask or an order decides: look-ups, scattering, masking, sorting."""

from __future__ import annotations

from collections.abc import Mapping

from . import indexing, rules, storage
from .attributes import COUNT, DIMENSION, FLAG, Attribute
from .kind import Kind, Traffic
from .rows import looking_up

INDEX_KINDS: Mapping[str, Kind] = {
    # A mask and two values for each element. Backward, each value's gradient is that of the output or zero.
    "where": Kind(
        family="elementwise",
        inputs=(1, 3),
        output=rules.broadcast_inputs,
        flops=rules.per_output_element(1),
        training_reads=Traffic(inputs=1, output=2),
        training_writes=Traffic(output=3),
        storage=storage.of_mask(0),
    ),
    # In place: an operator that is not, copies its input first. Backward, the same is done to a copy of the gradient.
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
        # Backward, the gradient of the table is zero but for the rows that were looked up, which are added to.
        training_reads=Traffic(inputs=2, output=1),
        training_writes=Traffic(output=1, parameters=1, workspace=1),
    ),
    "gather": looking_up(indexing.gather_output),
    "index_select": looking_up(indexing.index_select_output),
    # In place, as masked_fill is. Backward, the source's gradient is looked up.
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
    # Zeros, then a one for each class number.
    "one_hot": Kind(
        family="movement",
        attributes={"num_classes": Attribute(COUNT)},
        output=indexing.one_hot_output,
        flops=rules.per_output_element(0),
        has_gradient=False,
        backward_flops=0.0,
        writes=Traffic(inputs=1, output=1),
        training_reads=Traffic(inputs=1),
        training_writes=Traffic(inputs=1, output=1),
        storage=storage.one_hot,
    ),
    # Backward, gradients go back to where their values were, among zeros.
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
        # The k-th largest is found eight bits at a time, then all that is larger is gathered: TensorTopK.cu of PyTorch.
        reads=Traffic(inputs=5),
        training_reads=Traffic(inputs=5, output=1),
        training_writes=Traffic(inputs=1, output=2),
        storage=storage.largest,
    ),
}
