"""What a covariate does: to the transitions, to the long-run shares, and to the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.components.param_info import Params, check_count
from avem.data.frames import column, numbers
from avem.errors import ModelError
from avem.families.base import plain
from avem.fits.predict.at import chain_at, describe_means, means_at, moves_at, stays_in_time
from avem.fits.uncertainty import check_band, with_intervals
from avem.models.hmm import HMMModel
from avem.numerics.markov import long_run

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

CHAIN = ("transitions", "durations")
_CHAIN = {"transitions": ("transitions",), "stationary": CHAIN, "dwell": CHAIN}
"""What can be asked of the chain, and whose covariates act on it."""
_FEW = 12
"""Different values of a number up to which they are the grid."""


class Target(NamedTuple):
    """Something that a covariate acts on."""

    keys: pd.DataFrame
    """What each number of one grid point is."""
    values: Callable[[Params, np.ndarray], np.ndarray]
    """(grid points, numbers) at design columns (grid points, columns)."""
    scales: np.ndarray
    """(numbers,) "log", "logit" or "": where intervals are made."""


def covariate_table(
    fit: HMMFit,
    name: str,
    on: str | None,
    grid: Sequence[Any] | None,
    at: Mapping[str, Any] | None,
    points: int,
    level: float | None,
    kind: str,
) -> pd.DataFrame:
    """The table of `fit.covariate`."""
    check_band(level, kind)
    on = choose_target(fit, name, on)
    target = _chain_target(fit, on) if on in _CHAIN else _outcome_target(fit, name, on)
    values = _grid(fit, name, grid, points)
    held = _beside(fit, at, name)
    a = np.stack([columns_at(fit, {**held, name: value}) for value in values])
    n, each = len(values), len(target.keys)
    table = target.keys.loc[np.tile(np.arange(each), n)].reset_index(drop=True)
    table.insert(0, name, pd.Series(values).repeat(each).to_numpy())
    with np.errstate(invalid="ignore"):  # for ever less for ever
        return with_intervals(
            fit,
            table,
            lambda params: target.values(params, a).ravel(),
            np.tile(target.scales, n),
            level,
            kind,
        )


# --- what it acts on ----------------------------------------------------------------------------


def covariates_of(fit: HMMFit) -> dict[str, tuple[str, ...]]:
    """The columns that the formulas of transitions, durations and of each outcome read."""
    model = fit.model
    parts = model.designs.parts
    moves = model.transition.lines
    out = {"transitions": parts[moves[0].part].covariates if moves else ()}
    if model.duration is not None and model.duration.lines:
        out["durations"] = parts[model.duration.lines[0].part].covariates
    for piece in model.emissions:
        used = [parts[line.part].covariates for line in piece.lines if line.part >= 0]
        own = tuple(dict.fromkeys(covariate for names in used for covariate in names))
        out |= dict.fromkeys(piece.outcomes, own)
    return out


def choose_target(fit: HMMFit, name: str, on: str | None) -> str:
    """What to look at, or an error that says what there is."""
    read, outcomes = covariates_of(fit), list(fit.model.outcomes)
    known = list(dict.fromkeys(covariate for names in read.values() for covariate in names))
    if name not in known:
        what = f"choose one of {', '.join(map(repr, known))}" if known else "they have none"
        raise ModelError(
            f"The formulas of outcomes and transitions have no covariate {name!r}; {what}."
        )
    if on is None:
        if name in read["transitions"]:
            return "transitions"
        return "dwell" if name in read.get("durations", ()) else "outcomes"
    choices = [*_CHAIN, "outcomes", *outcomes]
    if on not in choices:
        raise ModelError(f"on is {on!r}; choose one of {', '.join(map(repr, choices))}.")
    wanted = _CHAIN.get(on) or (outcomes if on == "outcomes" else [on])
    if not any(name in read.get(key, ()) for key in wanted):
        acts = [key for key, names in read.items() if name in names]
        raise ModelError(
            f"{name!r} does not act on {'the transitions' if on in _CHAIN else on}: it is not in "
            f"the formula. It acts on {', '.join(acts)}."
        )
    return on


def _chain_target(fit: HMMFit, on: str) -> Target:
    """Of every type of subjects."""
    model = fit.model
    one = _of_one_chain(model if model.n_clusters == 1 else model.of_one_cluster(), on)

    def values(params: Params, a: np.ndarray) -> np.ndarray:
        found = [one.values(own, a) for _, own in of_clusters(model, params)]
        return np.concatenate(found, axis=1)

    return Target(by_cluster(model, one.keys), values, np.tile(one.scales, model.n_clusters))


def of_clusters(model: HMMModel, params: Params) -> Iterator[tuple[HMMModel, Params]]:
    """The model and the parameters of every type of subjects, or the only ones."""
    if model.n_clusters == 1:
        yield model, params
        return
    one = model.of_one_cluster()
    for c in range(model.n_clusters):
        yield one, model.params_of(params, c)


def by_cluster(model: HMMModel, table: pd.DataFrame) -> pd.DataFrame:
    """The keys of a table for every type of subjects, where there are several."""
    n, each = model.n_clusters, len(table)
    if n == 1:
        return table
    table = table.iloc[np.tile(np.arange(each), n)].reset_index(drop=True)
    table.insert(0, "cluster", np.repeat(np.arange(n), each))
    return table


def _of_one_chain(model: HMMModel, on: str) -> Target:
    k = model.n_states
    if on == "stationary":
        keys = pd.DataFrame({"state": np.arange(k)})
        return Target(
            keys,
            lambda params, a: long_run(chain_at(model, params, a)),
            np.full(k, "logit"),
        )
    if on == "dwell":
        keys = pd.DataFrame({"state": np.arange(k)})
        return Target(keys, lambda params, a: stays_in_time(model, params, a), np.full(k, "log"))
    keys = pd.DataFrame({"state": np.repeat(np.arange(k), k), "to_state": np.tile(np.arange(k), k)})
    return Target(
        keys,
        lambda params, a: moves_at(model, params, a).reshape(len(a), -1),
        np.full(k * k, "logit"),
    )


def _outcome_target(fit: HMMFit, name: str, on: str) -> Target:
    model, read = fit.model.in_user_units(), covariates_of(fit)
    wanted = [
        piece
        for piece in model.emissions
        if (on == "outcomes" or on in piece.outcomes) and name in read[piece.outcomes[0]]
    ]
    pieces = [piece for piece in wanted if describe_means(piece)]
    if not pieces:
        name, family = wanted[0].outcomes[0], wanted[0].family
        raise ModelError(f"{name!r} has a {family.name} family, which has no mean.")
    kinds = [mean for piece in pieces for mean in describe_means(piece)]
    shown = [i for i, mean in enumerate(kinds) if on in ("outcomes", mean.outcome)]
    states = np.arange(model.n_states)

    def values(params: Params, a: np.ndarray) -> np.ndarray:
        theta = model.params_in(params)
        rows, state = np.repeat(a, len(states), axis=0), np.tile(states, len(a))
        none = np.zeros((len(rows), model.n_effects))
        means = [means_at(piece, theta, rows, state, none) for piece in pieces]
        found = np.concatenate(means, axis=1)[:, shown]
        return found.reshape(len(a), -1)

    labels = [kinds[i].label for i in shown]
    keys = {"outcome": labels * len(states), "state": np.repeat(states, len(shown))}
    scales = np.array([kinds[i].scale for i in shown] * len(states), dtype=object)
    return Target(pd.DataFrame(keys), values, scales)


# --- where it is looked at ----------------------------------------------------------------------


def _grid(fit: HMMFit, name: str, given: Sequence[Any] | None, points: int) -> list[Any]:
    """The values of the covariate: those given, its levels, or its range in even steps."""
    if given is not None:
        return _given_grid(name, given)
    check_count("points", points)
    for part in fit.model.designs.parts:
        levels = part.levels_of(name)
        if levels is not None:
            return levels
    values = numbers(column(fit._panel(None).table, name, "a covariate"))
    assert values is not None  # without levels it is a number
    different = np.unique(values[np.isfinite(values)])
    if len(different) <= _FEW:
        return different.tolist()
    return np.linspace(different[0], different[-1], points).tolist()


def _given_grid(name: str, given: Any) -> list[Any]:
    if pd.api.types.is_scalar(given) or not isinstance(given, Iterable):
        raise ModelError(f"grid is {given!r}; a list of values of {name!r} is wanted: [{given!r}].")
    values = [plain(value) for value in given] if getattr(given, "ndim", 1) == 1 else []
    if not values or not all(map(_is_value, values)):
        raise ModelError(f"grid is {given!r}; values of {name!r} are wanted, none missing.")
    return values


def held_at(at: Any, known: Collection[str], unless: str) -> dict[str, Any]:
    """The values at which covariates are held; `unless` ends what is said of one not known."""
    if at is not None and not isinstance(at, Mapping):
        raise ModelError(f"at is {at!r}; a dict from covariates to values is wanted: {{'x': 0}}.")
    for name, value in (at or {}).items():
        if name not in known:
            raise ModelError(f"at has {name!r}{unless}")
        if not _is_value(value):
            raise ModelError(f"at has {name!r}: {value!r}; one value is wanted.")
    return dict(at or {})


def _beside(fit: HMMFit, at: Any, varied: str) -> dict[str, Any]:
    """Where the other covariates are held."""
    known = {name for names in covariates_of(fit).values() for name in names} - {varied}
    what = f"the others are {', '.join(map(repr, sorted(known)))}" if known else "no others"
    return held_at(at, known, f"; beside {varied!r} there are {what}.")


def _is_value(value: Any) -> bool:
    """Whether it is one number, label or date, and not missing."""
    return bool(pd.api.types.is_scalar(value)) and not pd.isna(value)


def columns_at(fit: HMMFit, values: Mapping[str, Any]) -> np.ndarray:
    """(design columns,) averages over the rows with an outcome, some covariates being as given."""
    seen = ~np.isnan(fit._own_data.y).all(axis=1)
    return design_at(fit, values, seen).mean(0)


def design_at(fit: HMMFit, values: Mapping[str, Any], rows: np.ndarray) -> np.ndarray:
    """(chosen rows, design columns) of the data, some covariates being as given."""
    panel, designs = fit._panel(None), fit.model.designs
    moved = replace(panel, table=panel.table.assign(**values))
    for part in designs.parts:
        if (part.unknown(moved) & ~part.unknown(panel) & rows).any():
            given = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            raise ModelError(f"{part.formula.text!r} has no value at {given}; choose others.")
    return designs.columns(moved)[rows]
