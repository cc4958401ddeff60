"""A state-space model as JSON; as careful as `hmm_json`, for the same reasons."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from avem.components.scaling import Scaling
from avem.data import parse_formula
from avem.data.clock import Clock
from avem.errors import FileError
from avem.fits.io.checked_json import typed
from avem.fits.io.hmm_json import designs_in, designs_out, one_sided, scaling_in
from avem.fits.io.sizes import check_formulas, check_ssm
from avem.models.ssm import SSMModel
from avem.models.ssm_specification import BLOCKS, RANDOM, STRUCTURES, SSMSpecification
from avem.models.state_names import check_state_names


@dataclass(frozen=True)
class _Model:
    n_latent: int
    formula: str
    state: str
    random: tuple[str, ...]
    effect_covariance: tuple[str, ...]
    learned: list
    """For every formula, levels and moments of its covariates."""
    scaling: dict
    state_names: tuple[str, ...] = ()
    continuous: bool = False
    unit: str | None = None


def ssm_model_out(model: SSMModel) -> dict[str, Any]:
    """The model as JSON."""
    spec = model.spec
    check_ssm(spec, model.designs)
    record = _Model(
        n_latent=spec.n_latent,
        formula=spec.formula.text,
        state=spec.state.text,
        random=spec.random,
        effect_covariance=spec.effect_covariance,
        learned=designs_out(model.designs),
        scaling=model.scaling.to_json(),
        state_names=spec.state_names,
        continuous=spec.clock is not None,
        unit=None if spec.clock is None else spec.clock.unit,
    )
    return asdict(record)


def ssm_model_in(found: dict[str, Any]) -> SSMModel:
    """The model that `ssm_model_out` described."""
    record = typed(_Model, found, "model")
    check_formulas([record.formula, record.state])
    formula, state = parse_formula(record.formula), one_sided(record.state)
    if not 1 <= record.n_latent <= len(formula.outcomes):
        raise FileError(
            f"its model has {record.n_latent} latent states and {len(formula.outcomes)} outcomes."
        )
    if state.groups:
        raise FileError("its formula of the states has effects.")
    if formula.offset or state.offset:
        raise FileError("its formulas have an offset, which no state-space model has.")
    if record.random != tuple(kind for kind in RANDOM if kind in record.random):
        raise FileError(f"its model's random parts are {record.random!r}.")
    words = record.effect_covariance
    if len(words) != len(BLOCKS) or any(word not in STRUCTURES for word in words):
        raise FileError(f"its effect_covariance is {words!r}.")
    names = check_state_names(record.state_names or None, record.n_latent)
    if record.unit is not None and not record.continuous:
        raise FileError("its model has a unit of time, and its time goes in steps.")
    clock = Clock(record.unit) if record.continuous else None
    spec = SSMSpecification(record.n_latent, formula, state, record.random, words, names, clock)
    designs = replace(designs_in(spec.formulas, record.learned), clock=clock)
    check_ssm(spec, designs)
    model = SSMModel(spec, designs, Scaling.none(0, 0, 0))
    return replace(model, scaling=scaling_in(record.scaling, designs, len(formula.outcomes)))
