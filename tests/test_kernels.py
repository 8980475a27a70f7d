"""Kernels as Python and as other kernels call them."""

import pickle

from longcrawl.kernels.lookup import compiled


@compiled
def double(number):
    return 2 * number


@compiled
def quadruple(number):
    return double(double(number))


def test_a_kernel_is_compiled_for_python_only_where_python_calls_it():
    assert quadruple(3) == 12
    assert double.signatures == []
    assert double(0.5) == 1.0
    assert quadruple(0.25) == 1.0
    assert [str(*signature) for signature in double.signatures] == ["float64"]
    assert [str(*signature) for signature in quadruple.signatures] == ["int64", "float64"]


def test_a_kernel_that_was_sent_to_another_process_is_called_by_kernels_and_by_python():
    sent = pickle.loads(pickle.dumps(quadruple))
    assert sent(5) == 20
    assert pickle.loads(pickle.dumps(double))(5) == 10
