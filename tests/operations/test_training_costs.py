"""What training adds, by hand: the backward of attention, and steps of optimizers."""

import pytest

from joulecast.operations.operation import Operation

Q = (2, 8, 100, 64)


def test_attention_computes_its_scores_again_in_the_backward():
    """Two products forward (scores, values), four backward (the gradients of v, scores, q and k), and scores again."""
    product = 2 * 2 * 8 * 100 * 100 * 64
    forward = Operation("attention", [Q, Q, Q])
    assert forward.flops == forward.executed_flops == 2 * product
    training = forward.replace(mode="training")
    assert (training.flops, training.executed_flops) == (6 * product, 7 * product)


@pytest.mark.parametrize(
    ("kind", "flops", "reads", "writes"),
    [
        # SGD: p -= lr g reads both.
        ("sgd_step", 2, 2, 1),
        # Adam, pass by pass over lists of tensors (_multi_tensor_adam): moments, root, quotient, parameters.
        ("adam_step", 13, 11, 7),
        # AdamW shrinks the parameters before that: a pass more.
        ("adamw_step", 14, 12, 8),
        # One pass: parameter, gradient and two moments in, parameter and moments out.
        ("adamw_fused_step", 14, 4, 3),
        # Two gradients become one.
        ("gradient_accumulation", 1, 2, 1),
    ],
)
def test_steps_of_optimizers_move_their_tensors_pass_by_pass(kind, flops, reads, writes):
    elements = 1000
    step = Operation(kind, [(elements,)], mode="training")
    assert step.flops == flops * elements
    assert (step.bytes_read, step.bytes_written) == (4 * reads * elements, 4 * writes * elements)


def test_norms_take_inputs_of_two_dimensions():
    """A scale and a shift for each of 16 channels, with no positions beside them."""
    assert Operation("batch_norm", [(8, 16)]).parameters == 32
    assert Operation("group_norm", [(8, 16)], {"num_groups": 4}).output_shape == (8, 16)
