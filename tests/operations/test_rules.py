"""What shape rules refuse: the four parts of each message, written out."""

from __future__ import annotations

import pytest

from joulecast.errors import InputError
from joulecast.operations.operation import Operation
from joulecast.operations.rules import experts_parameters, linear_output


def refused(kind, shapes, **attributes):
    with pytest.raises(InputError) as caught:
        Operation(kind, shapes, attributes).output_shape  # noqa: B018  (the rule runs when the operation is made)
    error = caught.value
    return error.what, error.given, error.allowed


@pytest.mark.parametrize(
    ("shapes", "given"),
    [
        pytest.param([(4, 8), (6, 9), (6, 5)], "(4, 8), (6, 9), (6, 5)", id="widths of query and key"),
        pytest.param([(4, 8), (6, 8), (7, 5)], "(4, 8), (6, 8), (7, 5)", id="lengths of key and value"),
        pytest.param([(8,), (6, 8), (6, 5)], "(8,), (6, 8), (6, 5)", id="one dimension"),
    ],
)
def test_query_key_and_value_must_fit(shapes, given):
    expected = ("query, key and value do not fit", given, "[..., L, E], [..., S, E], [..., S, D]")
    assert refused("attention", shapes) == expected


def test_attention_of_two_dimensions_has_no_heads():
    assert Operation("attention", [(4, 8), (6, 8), (6, 5)]).output_shape == (4, 5)


def test_heads_of_queries_must_divide_into_those_of_keys():
    """Three dimensions are heads, rows and columns. 6 heads of queries share 3 of keys, but 5 do not."""
    assert Operation("attention", [(6, 4, 8), (3, 6, 8), (3, 6, 8)]).output_shape == (6, 4, 8)
    assert refused("attention", [(5, 4, 8), (3, 6, 8), (3, 6, 8)]) == (
        "the heads of queries do not divide into those of keys",
        "5 heads of queries, 3 of keys",
        "as many heads of queries for each head of keys and values",
    )


def test_a_window_is_no_wider_than_the_keys():
    shapes = [(1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8)]
    assert Operation("attention", shapes, {"window": 6}).output_shape == (1, 2, 4, 8)
    what, given, allowed = refused("attention", shapes, window=7)
    assert (what, given, allowed) == ("the window of an attention does not fit its keys", 7, "1 to 6 keys, or None")


@pytest.mark.parametrize(
    ("first", "second"),
    [((2, 3), (4, 5)), ((3,), (3, 5)), ((2, 3), (3,))],
    ids=["inner", "left vector", "right vector"],
)
def test_inner_dimensions_of_a_product_must_agree(first, second):
    assert refused("matmul", [first, second]) == (
        "the inner dimensions of a matrix product differ",
        f"{first} and {second}",
        "[..., M, K] and [..., K, N]",
    )


def test_a_product_of_two_matrices_needs_no_batch():
    assert Operation("matmul", [(2, 3), (3, 5)]).output_shape == (2, 5)


def test_a_linear_layer_needs_a_dimension():
    with pytest.raises(InputError) as caught:
        linear_output([()], {"out_features": 3})
    assert caught.value.what == "a linear operation needs an input of at least one dimension"
    assert (caught.value.given, caught.value.allowed) == ((), "[..., features]")


@pytest.mark.parametrize("dim", [2, -3])
def test_dimensions_that_an_input_lacks(dim):
    expected = ("the input has no such dimension", f"dim={dim} of (2, 3)", "-2 to 1")
    assert refused("sum", [(2, 3)], dim=dim, keepdim=False) == expected


def test_dimensions_count_from_the_end_too():
    assert Operation("cat", [(1, 2), (3, 2)], {"dim": -2}).output_shape == (4, 2)
    assert refused("cat", [(1, 2), (3, 5)], dim=-2) == (
        "shapes to concatenate differ in another dimension",
        "(1, 2), (3, 5)",
        "shapes that differ in dimension 0 only",
    )


def test_shapes_broadcast_where_they_are_equal_or_one():
    assert Operation("add", [(1, 1, 4), (3, 1)]).output_shape == (1, 3, 4)
    expected = "sizes that are equal or 1 in each dimension, counted from the last"
    assert refused("add", [(2, 3), (2, 4)]) == ("these shapes do not broadcast", "(2, 3), (2, 4)", expected)


def test_batch_norm_needs_channels():
    expected = ("the input needs a batch and a channel dimension", (4,), "[batch, channels, ...]")
    assert refused("batch_norm", [(4,)]) == expected


@pytest.mark.parametrize(("affine", "parameters"), [(True, 2 * 6), (False, 0)])
def test_batch_norm_has_two_parameters_for_each_channel_if_any(affine, parameters):
    assert Operation("batch_norm", [(2, 6, 8, 5)], {"affine": affine}).parameters == parameters


def test_channels_of_a_group_norm_divide_into_its_groups():
    assert Operation("group_norm", [(2, 6, 4)], {"num_groups": 3}).output_shape == (2, 6, 4)
    expected = (
        "the channels of a group norm do not divide into its groups",
        "4 groups of (2, 6, 4)",
        "[batch, channels, ...] with channels a multiple of num_groups",
    )
    assert refused("group_norm", [(2, 6, 4)], num_groups=4) == expected


@pytest.mark.parametrize(("bias", "parameters"), [(False, 3 * 5 * 8), (True, 3 * (5 * 8 + 5))])
def test_parameters_of_experts(bias, parameters):
    """Three experts, each of 8 x 5 weights, and 5 biases."""
    attributes = {"num_experts": 3, "out_features": 5, "bias": bias}
    assert experts_parameters(((2, 4, 8),), attributes) == parameters
