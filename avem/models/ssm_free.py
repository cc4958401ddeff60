"""The parameters of a state-space model that are estimated, by functions of a model."""

from avem.models.hmm_free import count_free as count_ssm_free
from avem.models.hmm_free import find_free as find_ssm_free

__all__ = ["count_ssm_free", "find_ssm_free"]
