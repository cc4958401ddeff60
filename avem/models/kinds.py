"""What differs between the kinds of models, where everything else is done alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from avem.components.param_info import ParamInfo, Params
from avem.models import hmm_params as hmm
from avem.models import ssm_params as ssm
from avem.models.hmm import HMMModel
from avem.models.ssm import SSMModel


class Kind(NamedTuple):
    """How the parameters and effects of a kind of model are described, checked and translated."""

    size: str
    """What the number of its states is called."""
    state: str
    """What one of them is called."""
    param_info: Callable[[Any], Mapping[str, ParamInfo]]
    check_params: Callable[[Any, Any, str], Params]
    params_out: Callable[[Any, Params], Params]
    effects_in: Callable[[Any, Any], Any]
    effects_out: Callable[[Any, Any, Any], Any]


HMM = Kind(
    "n_states",
    "state",
    hmm.param_info,
    hmm.check_params,
    hmm.params_out,
    hmm.effects_in,
    hmm.effects_out,
)
SSM = Kind(
    "n_latent",
    "latent state",
    ssm.ssm_param_info,
    ssm.check_ssm_params,
    ssm.ssm_params_out,
    ssm.ssm_effects_in,
    ssm.ssm_effects_out,
)


def kind_of(model: HMMModel | SSMModel) -> Kind:
    """The kind of a model."""
    return SSM if isinstance(model, SSMModel) else HMM
