"""The models as scikit-learn knows estimators; they live in `avem.integrations.sklearn`."""

from avem.integrations.sklearn import HMMEstimator, SSMEstimator

__all__ = ["HMMEstimator", "SSMEstimator"]


def __dir__() -> list[str]:
    return __all__
