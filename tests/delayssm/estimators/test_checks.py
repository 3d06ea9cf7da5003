"""scikit-learn's own checks of estimators."""

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.base import is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from delayssm.estimators import DelayClassifier, DelayForecaster

pytestmark = pytest.mark.usefixtures("one_thread")

TINY: dict[str, Any] = {"d_model": 4, "d_state": 2, "depth": 1, "max_epochs": 3}

# Checks that cannot apply. To them, the rows of an array are samples without an order, and its columns are features.
FORECASTER = {
    "check_methods_sample_order_invariance": "the rows of an array are successive times, and their order matters",
    "check_methods_subset_invariance": "some rows of an array are another series, with other forecasts",
    "check_fit1d": "an array with one axis is a series with one channel, and is welcome",
    "check_fit2d_predict1d": "it is a series with one channel here, too; the error is about channels, not about axes",
}
CLASSIFIER = {
    "check_n_features_in": "the columns of an array are times; n_features_in_ counts channels, of which there is 1",
    "check_n_features_in_after_fitting": "sequences may be shorter or longer than those that were fitted",
    "check_classifiers_train": "it asks for an error where sequences have another length; what else it asks for is "
    "tested in test_classifier.py",
}


def not_applicable(estimator: Any) -> dict[str, str]:
    """Return the checks that cannot apply to an estimator, with the reasons."""
    return CLASSIFIER if is_classifier(estimator) else FORECASTER


@parametrize_with_checks(
    [DelayForecaster(**TINY), DelayClassifier(**TINY)], expected_failed_checks=not_applicable, xfail_strict=True
)
def test_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
