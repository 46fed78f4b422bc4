"""What shape rules refuse: the four parts of each message, written out."""

import pytest

from joulecast.errors import InputError
from joulecast.operations.operation import Operation

BROADCAST = "sizes that are equal or 1 in each dimension, counted from the last"
QKV = ("the inputs of attention have other shapes", "[..., L, E], [..., S, E], [..., S, D]")
INNER = ("the inputs of matmul have other shapes", "[..., M, K], [..., K, N]")
NORM = ("the channels of a group norm do not divide", "a multiple of 4")
HEADS = ("the heads of queries and of keys do not divide", "a multiple of 3")
CAT = ("shapes to concatenate differ in another dimension", "shapes that differ in dimension 0 only")
REFUSED = {
    "widths of query and key": ("attention", [(4, 8), (6, 9), (6, 5)], {}, QKV, "(4, 8), (6, 9), (6, 5)"),
    "lengths of key and value": ("attention", [(4, 8), (6, 8), (7, 5)], {}, QKV, "(4, 8), (6, 8), (7, 5)"),
    "one dimension": ("attention", [(8,), (6, 8), (6, 5)], {}, QKV, "(8,), (6, 8), (6, 5)"),
    # Three dimensions are heads, rows and columns. 6 heads of queries share 3 of keys, but 5 do not.
    "heads": ("attention", [(5, 4, 8), (3, 6, 8), (3, 6, 8)], {}, HEADS, "5 over 3"),
    "window": (
        *("attention", [(1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8)], {"window": 7}),
        *(("the window of an attention over its keys is too large", "up to 6"), 7),
    ),
    "inner": ("matmul", [(2, 3), (4, 5)], {}, INNER, "(2, 3), (4, 5)"),
    "left vector": ("matmul", [(3,), (3, 5)], {}, INNER, "(3,), (3, 5)"),
    "right vector": ("matmul", [(2, 3), (3,)], {}, INNER, "(2, 3), (3,)"),
    **{
        f"dimension {dim}": (
            *("sum", [(2, 3)], {"dim": dim, "keepdim": False}),
            *(("the input has no such dimension", "-2 to 1"), f"dim={dim} of (2, 3)"),
        )
        for dim in (2, -3)
    },
    "another dimension": ("cat", [(1, 2), (3, 5)], {"dim": -2}, CAT, "(1, 2), (3, 5)"),
    "broadcast": ("add", [(2, 3), (2, 4)], {}, ("these shapes do not broadcast", BROADCAST), "(2, 3), (2, 4)"),
    "channels": (
        *("batch_norm", [(4,)], {}),
        *(("the inputs of batch_norm have other shapes", "[batch, channels, ...]"), "(4,)"),
    ),
    "groups": ("group_norm", [(2, 6, 4)], {"num_groups": 4}, NORM, "6 over 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_all_parts(name):
    kind, shapes, attributes, (what, allowed), given = REFUSED[name]
    with pytest.raises(InputError) as caught:
        Operation(kind, shapes, attributes)
    assert (caught.value.what, caught.value.given) == (what, given)
    assert caught.value.allowed.startswith(allowed)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "output"),
    [
        ("attention", [(4, 8), (6, 8), (6, 5)], {}, (4, 5)),  # without heads
        ("attention", [(6, 4, 8), (3, 6, 8), (3, 6, 8)], {}, (6, 4, 8)),
        ("attention", [(1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8)], {"window": 6}, (1, 2, 4, 8)),
        ("matmul", [(2, 3), (3, 5)], {}, (2, 5)),
        ("cat", [(1, 2), (3, 2)], {"dim": -2}, (4, 2)),
        ("add", [(1, 1, 4), (3, 1)], {}, (1, 3, 4)),
        ("group_norm", [(2, 6, 4)], {"num_groups": 3}, (2, 6, 4)),
        ("group_norm", [(8, 16)], {"num_groups": 4}, (8, 16)),  # without positions
    ],
)
def test_what_just_fits_has_its_output(kind, shapes, attributes, output):
    assert Operation(kind, shapes, attributes).output_shape == output


@pytest.mark.parametrize("shape", [(2, 6, 8, 5), (2, 6)])
def test_batch_norm_has_two_parameters_for_each_channel_if_any(shape):
    parameters = [Operation("batch_norm", [shape], {"affine": affine}).parameters for affine in (True, False)]
    assert parameters == [2 * 6, 0]
