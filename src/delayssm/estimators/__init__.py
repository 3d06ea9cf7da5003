"""Forecasting and classification of series with the interface of scikit-learn.

forecast = DelayForecaster(horizon=24).fit(series).predict(series)
labels = DelayClassifier().fit(sequences, y).predict(others)
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise ImportError("delayssm.estimators needs scikit-learn: pip install '.[estimators]' in a clone") from None

from delayssm.estimators.classifier import DelayClassifier
from delayssm.estimators.forecaster import DelayForecaster

__all__ = ["DelayClassifier", "DelayForecaster"]
