"""A fixture for pytest: `assert_energy` fails a test whose model is over its budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def assert_energy() -> Callable[..., None]:
    """A function of a model, its input shape, a GPU, budgets ("energy=3J"), and options of `joulecast.predict`."""
    from .api import predict
    from .queries.budgets import Budget, Review

    def check(model: Any, input_shape: Any, gpu: str, *budgets: str, **options: Any) -> None:
        allowed = [Budget.of(budget) for budget in budgets]
        review = Review(predict(model, input_shape, gpu, **options).to_dict(), None, allowed)
        if review.exceeded:
            pytest.fail(review.to_markdown(), pytrace=False)

    return check
