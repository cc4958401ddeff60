"""What a fitted HMM says of values not seen: of rows to come, and of each row before it came."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.components.param_info import check_count, check_level, check_seed
from avem.data import Panel
from avem.data.ahead import Ahead
from avem.errors import AvemWarning
from avem.fits.predict.ahead import for_each, rows_ahead
from avem.fits.predict.at import Place, places, user_theta
from avem.fits.predict.mixture import Mixture, mixtures, need_distributions
from avem.fits.predict.paths import Simulated, must_simulate
from avem.fits.predict.posterior import EFFECTS, in_user_units, nodes_for
from avem.fits.words import check_word
from avem.inference.after.hmm_states import states_given
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.models.hmm_paths import check_draws

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


def predict(
    fit: HMMFit,
    horizon: int,
    data: Any = None,
    future: Any = None,
    of: str = "outcomes",
    level: float = 0.95,
    effects: str = "integrated",
    n_draws: int = 1000,
    seed: int = 0,
) -> Any:
    """Per sequence, step beyond its end and outcome: mean, sd and interval of the coming value.

    The distribution of a coming value is a mixture over the states and over what is not known of
    the subject's effects. The interval is between its own quantiles, whatever its shape: whole
    numbers for counts; for angles an arc around the mean direction, from `lower` anticlockwise to
    `upper`, and a circular mean and sd. Labels have a row for each `level`, whose probability is
    the `mean`. Choices coded 0 and 1 are numbers: the mean is the probability of 1.

    Parameters
    ----------
    horizon
        Steps beyond the last row of every sequence.
    data
        What happened so far; by default the data of the fit.
    future
        The covariates of the steps ahead, where the model has any. A frame: subject, sequence,
        time if there is one, and at least `horizon` rows per sequence. Or, the same ahead of all
        sequences, a dict: ``{"stress": 0}``, or ``{"stress": [0, 1, 2]}`` step by step; what
        never changes within a subject, such as its group, need not be in it.
    of
        ``"outcomes"``, or ``"states"`` for the `probability` of every state.
    effects
        ``"integrated"``: over the posterior of each subject's effects, the states integrated out:
        of the fit's subjects given the rows of the fit, of others given these rows.
        ``"fitted"``: every subject at the mean of its effects, as `decode` has them.
    n_draws, seed
        Of paths for each sequence, where coming values depend on values still to come: `lag` of an
        outcome beyond the first step, and custom outcomes, of which the draws are all there is.
    """
    check_level(level)
    check_count("n_draws", n_draws)
    check_seed(seed)
    check_word("of", of, ("outcomes", "states"))
    encoded = fit._encode(data)
    ahead, at = predictive(fit, encoded, horizon, future, effects, of, None, n_draws, seed)
    if of == "states":
        names = fit._state_columns()
        table = for_each(ahead, names, "state").assign(probability=at.chance.ravel())
    else:
        table = outcome_table(fit.model, at.each(), ahead.keys, level)
        _tell_unknown(int(np.sum(table["mean"].isna())))
    return encoded.panel.source.table(table)


def _tell_unknown(n: int) -> None:
    if n:
        warnings.warn(
            f"{n:,} value(s) ahead are not predicted (NaN): the lag() in their formula looks back "
            "to a row whose value is missing, or to none.",
            AvemWarning,
            stacklevel=4,
        )


def predictive(
    fit: HMMFit,
    encoded: Encoded,
    horizon: int,
    future: Any,
    effects: str,
    of: str = "outcomes",
    lanes: np.ndarray | None = None,
    n_draws: int = 1000,
    seed: int = 0,
) -> tuple[Ahead, Predictive | Simulated]:
    """The rows ahead, of all sequences or of some, and what is known of states and effects."""
    model = fit.model
    ahead = rows_ahead(model, encoded.panel, horizon, future)
    if lanes is not None:
        some = np.isin(np.repeat(np.arange(encoded.panel.n_lanes), horizon), lanes)
        keys: Any = ahead.keys.loc[some].reset_index(drop=True)
        ahead = ahead._replace(rows=ahead.rows[some], keys=keys)
    if must_simulate(model, horizon, of):
        check_word("effects", effects, EFFECTS)
        check_draws(model)
        return ahead, Simulated(fit, encoded, ahead, horizon, effects, n_draws, seed)
    at = Predictive.make(fit, model.encode(ahead.panel), encoded, effects, ahead.rows)
    return ahead, at


def predictions(fit: HMMFit, encoded: Encoded, level: float, effects: str) -> dict[str, np.ndarray]:
    """(rows,) mean, sd, lower and upper of each outcome, given the rows before in its sequence.

    As in `predict`, one step ahead of every row; of labels, the probability of each level. NaN
    where a covariate is missing. The subjects' effects are found from all rows: of the fit's
    subjects from those of the fit.
    """
    need_distributions(fit.model, "Predictions")
    at = Predictive.make(fit, encoded, encoded, effects, np.arange(encoded.panel.n_rows))
    columns: dict[str, np.ndarray] = {}
    for place in places(fit.model):
        names = _column_names(place)
        columns |= {name: np.full(encoded.panel.n_rows, np.nan) for name in names}
    for rows, place, mixture, known in at.each():
        if (levels := place.piece.family.labels) is not None:
            found = list(mixture.chances(len(levels)).T)
        else:
            found = [mixture.mean, mixture.sd, *mixture.interval(level)]
        for name, values in zip(_column_names(place), found, strict=True):
            columns[name][rows] = np.where(known, values, np.nan)
    return columns


class Predictive(NamedTuple):
    """Some rows with the chances of the states there and the effects of their subjects."""

    fit: HMMFit
    encoded: Encoded
    rows: np.ndarray
    effects: np.ndarray
    """(rows, nodes, d), in the user's units."""
    weight: np.ndarray
    """(rows, nodes, states)."""

    @classmethod
    def make(
        cls, fit: HMMFit, encoded: Encoded, source: Encoded, effects: str, rows: np.ndarray
    ) -> Predictive:
        """With what is known of the effects from `source`, data of the same subjects."""
        nodes = nodes_for(fit, source, effects)
        chance = states_given(encoded, fit.theta, nodes.at, "before", rows)
        who = encoded.panel.row_subject[rows]
        weight = chance * nodes.share[:, who].T[:, :, None]
        return cls(fit, encoded, rows, in_user_units(fit, nodes)[who], weight)

    @property
    def chance(self) -> np.ndarray:
        """(rows, states) probability of each state."""
        return self.weight.sum(1)

    def each(self) -> Iterator[tuple[np.ndarray, Place, Mixture, np.ndarray]]:
        """(rows from 0, place, mixture, whether its covariates are known), block by block."""
        model, panel = self.fit.model, self.encoded.panel
        Y, A = (part[self.rows] for part in self.encoded.in_user_units(model.scaling))
        theta, every = user_theta(self.fit), np.arange(len(self.rows))
        known = known_places(model, panel, Y, self.rows)
        found = mixtures(model, theta, every, A, Y, *self[3:])
        for rows, number, place, mixture in found:
            yield rows, place, mixture, known[number][rows]


def known_places(
    model: HMMModel, panel: Panel, Y: np.ndarray, rows: np.ndarray
) -> list[np.ndarray]:
    """For each outcome, whether all that its formulas and its family read in the rows is there."""
    unknown: dict[int, np.ndarray] = {}
    out = []
    for place in places(model):
        lost = np.isnan(Y[:, list(place.extras)]).any(axis=1)
        for number in place.piece.parts:
            if number not in unknown:
                unknown[number] = model.designs.parts[number].unknown(panel)[rows]
            lost |= unknown[number]
        out.append(~lost)
    return out


# --- tables -------------------------------------------------------------------------------------


def _column_names(place: Place) -> list[str]:
    levels = place.piece.family.labels
    if levels is not None:
        return [f"{place.name}[{level}]" for level in levels]
    return [place.name + end for end in ("", "_sd", "_lower", "_upper")]


def outcome_table(
    model: HMMModel, each: Iterable[tuple[Any, ...]], keys: pd.DataFrame, level: float
) -> pd.DataFrame:
    """What is said of coming values, (rows, place, mixture, known) at a time, beside their keys."""
    every = places(model)
    labelled = any(place.piece.family.labels is not None for place in every)
    parts: list[Any] = []
    for rows, place, mixture, known in each:
        levels = place.piece.family.labels
        if levels is None:
            found = [(None, mixture.mean, mixture.sd, *mixture.interval(level))]
        else:
            none = np.full(len(rows), np.nan)
            chances = mixture.chances(len(levels)).T
            sds = [np.sqrt(p * (1 - p)) for p in chances]
            found = [(v, p, sd, none, none) for v, p, sd in zip(levels, chances, sds, strict=True)]
        for number, (label, *values) in enumerate(found):
            part: Any = keys.iloc[rows].assign(outcome=place.name)
            if labelled:
                part["level"] = pd.Series([label] * len(rows), index=part.index, dtype=object)
            numbers = [np.where(known, each, np.nan) for each in values]
            part[["mean", "sd", "lower", "upper"]] = np.stack(numbers, axis=1)
            order = (rows, np.full(len(rows), every.index(place)), np.full(len(rows), number))
            parts.append((part, np.stack(order)))
    order = np.concatenate([order for _, order in parts], axis=1)
    table = pd.concat([part for part, _ in parts])
    return table.iloc[np.lexsort(order[::-1])].reset_index(drop=True)
