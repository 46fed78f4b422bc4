"""What training adds to attention, and what norms have of parameters, by hand."""

from joulecast.operations.operation import Operation

Q = (2, 8, 100, 64)


def test_attention_computes_its_scores_again_in_the_backward():
    """Two products forward (scores, values), four backward (the gradients of v, scores, q and k), and scores again."""
    product = 2 * 2 * 8 * 100 * 100 * 64
    forward = Operation("attention", [Q, Q, Q])
    assert forward.flops == forward.executed_flops == 2 * product
    training = forward.replace(mode="training")
    assert (training.flops, training.executed_flops) == (6 * product, 7 * product)


def test_norms_take_inputs_of_two_dimensions():
    """A scale and a shift for each of 16 channels, with no positions beside them."""
    assert Operation("batch_norm", [(8, 16)]).parameters == 32
    assert Operation("group_norm", [(8, 16)], {"num_groups": 4}).output_shape == (8, 16)
