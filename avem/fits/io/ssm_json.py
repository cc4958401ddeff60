"""A state-space model as JSON; as careful as `_model_json`, for the same reasons."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from avem.components.scaling import Scaling
from avem.data import parse_formula
from avem.errors import FileError
from avem.fits.io.archive import typed
from avem.fits.io.hmm_json import MAX_SIZE, designs_in, designs_out, one_sided, scaling_in
from avem.models.ssm import BLOCKS, RANDOM, STRUCTURES, SSMModel, SSMSpecification


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


def ssm_model_out(model: SSMModel) -> dict[str, Any]:
    """The model as JSON."""
    spec = model.spec
    _check_size(model)
    record = _Model(
        n_latent=spec.n_latent,
        formula=spec.formula.text,
        state=spec.state.text,
        random=spec.random,
        effect_covariance=spec.effect_covariance,
        learned=designs_out(model.designs),
        scaling=model.scaling.to_json(),
    )
    return asdict(record)


def ssm_model_in(found: dict[str, Any]) -> SSMModel:
    """The model that `ssm_model_out` described."""
    record = typed(_Model, found, "model")
    formula, state = parse_formula(record.formula), one_sided(record.state)
    if not 1 <= record.n_latent <= len(formula.outcomes):
        raise FileError(
            f"its model has {record.n_latent} latent states and {len(formula.outcomes)} outcomes."
        )
    if state.groups:
        raise FileError("its formula of the states has effects.")
    if record.random != tuple(kind for kind in RANDOM if kind in record.random):
        raise FileError(f"its model's random parts are {record.random!r}.")
    words = record.effect_covariance
    if len(words) != len(BLOCKS) or any(word not in STRUCTURES for word in words):
        raise FileError(f"its effect_covariance is {words!r}.")
    spec = SSMSpecification(record.n_latent, formula, state, record.random, words)
    designs = designs_in(spec.formulas, record.learned)
    model = SSMModel(spec, designs, Scaling.none(0, 0, 0))
    _check_size(model)
    return replace(model, scaling=scaling_in(record.scaling, designs, len(formula.outcomes)))


def _check_size(model: SSMModel) -> None:
    p, n_columns = len(model.outcomes), len(model.designs.keys)
    n_effects = model.n_latent**2 + p * (model.n_latent + n_columns)
    if n_effects**2 > MAX_SIZE:
        raise FileError(
            f"{model.n_latent:,} latent states, {p:,} outcomes and {n_columns:,} columns are more "
            "than avem saves."
        )
