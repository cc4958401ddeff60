"""A model as JSON: what was asked for, and what was learned from the data for it.

The JSON may come from a stranger: formulas are read by `avem.data`, which knows only its own few
functions, families are looked up in a list, and sizes are checked before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from avem.components.duration import Duration, duration_in, duration_out, families_of
from avem.components.generator import Rates
from avem.components.given_moves import GivenMoves
from avem.components.logit_transitions import LogitTransitions
from avem.components.outcome import Outcome, outcome
from avem.components.priors import Prior, prior_from_json
from avem.components.scaling import Scaling
from avem.components.transitions import Transitions, from_json
from avem.data import Design, parse_formula
from avem.data.designs import Designs
from avem.data.formula import Formula
from avem.effects.prior import STRUCTURES
from avem.errors import FileError
from avem.families import Custom, families_in_files
from avem.families.base import Family, plain
from avem.fits.io.checked_json import typed
from avem.fits.io.given import Given
from avem.fits.io.sizes import (
    check_clusters,
    check_designs,
    check_formulas,
    check_hmm,
    check_states,
)
from avem.models.constraints import as_constraints
from avem.models.given_priors import WEAK, as_priors
from avem.models.hmm import HMMModel
from avem.models.hmm_specification import Specification
from avem.models.state_names import check_state_names

_MAX_LEVELS = 10_000  # of an outcome
_MAX_DURATION = 10_000
KINDS = (LogitTransitions, Rates, GivenMoves)
"""The kinds of transitions whose words every file may use: they are known once imported."""


@dataclass(frozen=True)
class _Model:
    n_states: int
    outcomes: list
    transition: str
    initial: str | None
    """None: stationary."""
    effect_covariance: str
    learned: list
    """For every formula, levels and moments of its covariates."""
    scaling: dict
    averages: tuple[float, ...]
    kind: dict | None = None
    """Of transitions that are an object; null: as the formula says."""
    state_names: tuple[str, ...] = ()
    known: str | None = None
    silent: tuple[int, ...] = ()
    duration: dict | None = None
    """Null: as in a Markov chain."""
    constraints: tuple[str, ...] = ()
    priors: list | None = None
    """Pairs of names and priors."""
    n_clusters: int = 1


@dataclass(frozen=True)
class _Outcome:
    formula: str
    family: dict
    levels: list
    """For each outcome of the formula; null where the family has none."""
    parameters: dict
    effects_by_state: bool


@dataclass(frozen=True)
class _Units:
    """The JSON of a `Scaling`."""

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    column_centre: tuple[float, ...]
    column_scale: tuple[float, ...]
    constant: int


# --- out ----------------------------------------------------------------------------------------


def model_out(model: HMMModel) -> dict[str, Any]:
    """The model as JSON."""
    spec = model.spec
    as_formula = LogitTransitions(text=spec.transition.formula.text)
    check_formulas([formula.text for formula in spec.formulas])
    check_hmm(spec, model.families, model.designs)
    record = _Model(
        n_states=spec.n_states,
        outcomes=[
            asdict(_outcome_out(item, families))
            for item, families in zip(spec.outcomes, model.families, strict=True)
        ],
        transition=spec.transition.formula.text,
        initial=None if spec.initial is None else spec.initial.text,
        effect_covariance=spec.effect_covariance,
        learned=designs_out(model.designs),
        scaling=model.scaling.to_json(),
        averages=tuple(model.averages.tolist()),
        kind=None if as_formula == spec.transition else spec.transition.to_json(),
        state_names=spec.state_names,
        known=spec.known,
        silent=model.silent,
        duration=None if spec.duration is None else duration_out(spec.duration),
        constraints=spec.constraints,
        priors=[[name, prior.to_json()] for name, prior in spec.priors] or None,
        n_clusters=spec.n_clusters,
    )
    return asdict(record)


def designs_out(designs: Designs) -> list[dict[str, Any]]:
    """For every formula, levels, moments and bases of its covariates."""
    kept = ("levels", "moments", "bases")
    return [
        {name: part.state[name] for name in kept if name in part.state} for part in designs.parts
    ]


def _outcome_out(item: Outcome, families: tuple[Family, ...]) -> _Outcome:
    about = item.family.evidence(len(families))
    if item.family.cannot_save and not about:
        raise FileError(item.family.cannot_save)
    about = {"name": item.family.name, **about} if about else item.family.to_json()
    return _Outcome(
        formula=item.formula.text,
        family={name: _saved(value) for name, value in about.items()},
        levels=[None if own.levels is None else _saved(own.levels) for own in families],
        parameters={name: formula.text for name, formula in item.parameters},
        effects_by_state=item.effects_by_state,
    )


def _saved(field: Any) -> Any:
    """A field of a family, or its levels, as JSON keeps them."""
    return [_level(part) for part in field] if isinstance(field, tuple) else _level(field)


def _level(value: Any) -> Any:
    value = plain(value)
    if type(value) not in (str, int, float, bool):
        raise FileError(
            f"The level {value!r} is a {type(value).__name__}, which cannot be saved; text, "
            "numbers and booleans can. Turn the outcome into text and fit again."
        )
    return value


# --- in -----------------------------------------------------------------------------------------


def model_in(found: dict[str, Any], given: Given) -> HMMModel:
    """The model that `model_out` described; `given` has the families that a file cannot hold."""
    record = typed(_Model, found, "model")
    if record.n_states < 1:
        raise FileError("its model has no states.")
    check_states(record.n_states)
    check_clusters(record.n_clusters, record.n_states)
    if record.n_clusters > 1 and (record.initial is None or record.duration is not None):
        raise FileError("its clusters go with neither durations nor a stationary start.")
    if record.effect_covariance not in STRUCTURES:
        raise FileError(f"its effect_covariance is {record.effect_covariance!r}.")
    check_formulas([""] * len(record.outcomes))
    outcomes = [typed(_Outcome, item, "outcome") for item in record.outcomes]
    own = [text for item in outcomes for text in (item.formula, *item.parameters.values())]
    stays = (record.duration or {}).get("formula", "")
    check_formulas([str(text) for text in (*own, record.transition, record.initial, stays)])
    spec = Specification(
        record.n_states,
        tuple(_outcome_in(item, given) for item in outcomes),
        _transitions_in(record),
        None if record.initial is None else one_sided(record.initial),
        record.effect_covariance,
        check_state_names(record.state_names or None, record.n_states),
        record.known,
        None if record.duration is None else _duration_in(record),
        tuple(one.text for one in as_constraints(list(record.constraints))),
        _priors_in(record.priors),
        record.n_clusters,
    )
    _check_spec(spec)
    pairs = zip(spec.outcomes, outcomes, strict=True)
    families = tuple(_learned_families(item, saved.levels) for item, saved in pairs)
    designs = replace(designs_in(spec.formulas, record.learned), clock=spec.transition.clock)
    check_hmm(spec, families, designs)
    nothing = Scaling.none(0, 0, 0)
    if not set(record.silent) <= set(range(spec.n_states)):
        raise FileError("it has states without outcomes that its model does not have.")
    averages = np.array(record.averages, float)
    model = HMMModel(spec, families, designs, nothing, averages, record.silent)
    n_columns = len(model.designs.keys)
    if len(model.averages) != n_columns or not np.isfinite(model.averages).all():
        raise FileError("its scaling does not belong to its formulas.")
    return replace(model, scaling=scaling_in(record.scaling, designs, model.n_columns))


def _transitions_in(record: _Model) -> Transitions:
    formula = one_sided(record.transition)
    return LogitTransitions(text=formula.text) if record.kind is None else from_json(record.kind)


def _priors_in(saved: list | None) -> tuple[tuple[str, Prior], ...]:
    """The priors, none of which can be what no user could give."""
    pairs = saved or []
    if not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in pairs
    ):
        raise FileError("its priors are damaged.")
    given = {name: prior_from_json(prior) for name, prior in pairs}
    return as_priors(WEAK) if WEAK in given else as_priors(given)


def _duration_in(record: _Model) -> Duration:
    """The durations, which a model that was fitted has a maximum of."""
    duration = duration_in(record.duration or {})
    families_of(duration, record.n_states)
    if duration.max is None or duration.max > _MAX_DURATION:
        raise FileError(f"its durations have max={duration.max}; at most {_MAX_DURATION:,} is.")
    return duration


def designs_in(formulas: Sequence[Formula], learned: list) -> Designs:
    """The designs of these formulas, with what `designs_out` kept of them."""
    if len(learned) != len(formulas):
        raise FileError(f"it has {len(learned)} designs for {len(formulas)} formulas.")
    kept: list[Design] = []
    check_designs(_each_kept(formulas, learned, kept))
    return Designs(tuple(kept))


def _each_kept(formulas: Sequence[Formula], learned: list, kept: list[Design]) -> Iterator[Design]:
    """Make one design after the other."""
    for formula, own in zip(formulas, learned, strict=True):
        if not isinstance(own, dict):
            raise FileError(f"its design of {formula.text!r} is damaged.")
        kept.append(Design.from_state({**own, "formula": formula.text}))
        yield kept[-1]


def _outcome_in(saved: _Outcome, given: Given) -> Outcome:
    name = saved.family.get("name")
    known = families_in_files()
    if name == Custom.name:
        family = given.take(saved.formula, saved.family)
    elif name in known:
        family = typed(known[name], saved.family, "family")
    else:
        raise FileError(f"its family is {name!r}; this avem knows {', '.join(known)}.")
    return outcome(
        saved.formula, family, effects_by_state=saved.effects_by_state, **saved.parameters
    )


def _learned_families(item: Outcome, levels: list) -> tuple[Family, ...]:
    found = []
    for name, own in zip(item.formula.outcomes, levels, strict=True):
        family = item.family
        if family.levels is not None:
            with_levels = {**family.to_json(), "levels": own}
            family = typed(type(family), with_levels, f"outcome {name!r}")
            kinds, n = set(family.levels or ()), len(family.levels or ())
            if len(kinds) != n or not 2 <= n <= min(family.most_levels, _MAX_LEVELS):
                raise FileError(f"its outcome {name!r} has the levels {str(own)[:40]}.")
        found.append(family)
    return tuple(found)


def one_sided(text: str) -> Formula:
    """The formula, which must not have an outcome."""
    formula = parse_formula(text)
    if formula.outcomes:
        raise FileError(f"its formula {text!r} of the states has an outcome.")
    return formula


def _check_spec(spec: Specification) -> None:
    names = [name for item in spec.outcomes for name in item.formula.outcomes]
    if not names or len(set(names)) < len(names):
        raise FileError("its model has no outcomes, or one of them twice.")
    if spec.initial is not None and spec.initial.offset:
        raise FileError("its formula of the first state has an offset.")


def scaling_in(found: dict[str, Any], designs: Designs, n_outcomes: int) -> Scaling:
    """The scaling of these designs and so many outcome columns."""
    units = typed(_Units, found, "scaling")
    n_columns = len(designs.keys)
    sizes = np.array([*units.scale, *units.column_scale])
    places = np.array([*units.centre, *units.column_centre])
    parts = (units.centre, units.scale, units.column_centre, units.column_scale)
    if (
        tuple(map(len, parts)) != (n_outcomes, n_outcomes, n_columns, n_columns)
        or units.constant != designs.names.index("Intercept")
        or (places[n_outcomes + units.constant], sizes[n_outcomes + units.constant]) != (0.0, 1.0)
        or not (np.isfinite(sizes).all() and np.isfinite(places).all() and (sizes > 0).all())
    ):
        raise FileError("its scaling does not belong to its formulas.")
    return Scaling.from_json(asdict(units))
