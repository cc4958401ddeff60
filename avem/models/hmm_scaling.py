"""The units in which a mixed HMM is fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from avem.components.scaling import Scaling

if TYPE_CHECKING:
    from avem.components.emission import Emission
    from avem.models.encoded import PanelData
    from avem.models.hmm import HMMModel


def learn_scaling(model: HMMModel, data: PanelData) -> Scaling:
    """Units in which outcomes and covariates have size 1, as far as the model stays the same."""
    n_columns, constant = len(model.designs.keys), model.scaling.constant
    isotropic = model.effect_covariance == "isotropic"
    centre, scale = np.zeros(model.n_columns), np.ones(model.n_columns)
    for emission in model.emissions:
        unit = emission.unit(constant, isotropic)
        if unit is None:
            continue
        at = list(unit.columns)
        found = data.spreads(at)
        if unit.together:
            found = np.full_like(found, np.exp(np.log(found).mean()))
        if isotropic and len(model.emissions) > 1 and model.structure.effects:
            found = np.ones_like(found)
        scale[at] = found
        if unit.can_shift:
            centre[at] = data.medians(at)
        scale[list(unit.beside)] = found[0]
    owners = _offset_owners(model, constant)
    for emission in model.emissions:
        if owners.get(emission.lines[0].offset, emission) is not emission:
            scale[list(emission.y_cols)] = 1.0  # an offset in several units can have none
    column_centre, column_scale = np.zeros(n_columns), np.ones(n_columns)
    for column, owner in owners.items():
        if owner is not None:  # it has the unit of what it is added to
            column_scale[column] = scale[owner.y_cols[0]]
    clock, observed = model.designs.clock_cols, model.outcome_columns
    columns = sorted(set(range(n_columns)) - {constant, *owners, *clock})
    free = {column: _freedom(model, column, constant) for column in columns}
    shifted = [column for column, (may_shift, _) in free.items() if may_shift]
    scaled = [column for column, (_, may_scale) in free.items() if may_scale]
    if shifted:
        column_centre[shifted] = data.design_means(observed)[shifted]
    if scaled:
        column_scale[scaled] = data.design_sizes(column_centre, observed)[scaled]
    moves = model.transition.lines
    if clock and moves and constant in moves[0].x_cols:
        # A usual interval is 1, and a density of an event's time stays one in the user's unit.
        column_scale[list(clock)] = data.usual(clock[0])
    return Scaling(centre, scale, column_centre, column_scale, constant)


def _offset_owners(model: HMMModel, constant: int) -> dict[int, Emission | None]:
    """For each offset, the one emission in whose unit it is; None where there is no such one."""
    isotropic, found = model.effect_covariance == "isotropic", {}
    chain = [line for part in (model.transition, model.initial) for line in part.lines]
    for line in chain:
        found[line.offset] = None
    for emission in model.emissions:
        for i, line in enumerate(emission.lines):
            mine = i == 0 and emission.unit(constant, isotropic) is not None
            found[line.offset] = emission if mine and line.offset not in found else None
    found.pop(-1, None)
    return found


def _freedom(model: HMMModel, column: int, constant: int) -> tuple[bool, bool]:
    """Whether a design column may be centred, and scaled, without changing the model."""
    structure, covariance = model.structure, model.effect_covariance
    lines = [(line, e.reads_user_units) for e in model.emissions for line in e.lines]
    lines += [(line, False) for line in model.state_lines]
    may_shift = may_scale = True
    for line, reads_user_units in lines:
        if column in (*line.x_cols, *line.z_cols) and reads_user_units:
            return False, False
        if column in line.x_cols:
            may_shift &= constant in line.x_cols
        if column in line.z_cols:
            # A centred slope is correlated with its intercept: only one full block allows that.
            blocks = {structure.effects[e].block for e in line.effects[0]}
            mixes = covariance in ("full", "block") and len(blocks) == 1
            may_shift &= mixes and constant in line.z_cols
            may_scale &= covariance != "isotropic"
    return may_shift, may_scale
