"""Formulas to design matrices, with what was learned from the data."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from avem.data.coding import Column, check_number, columns_of
from avem.data.columns import (
    MAX_LEVELS,
    atom_values,
    is_levels,
    learn_basis,
    learn_levels,
    learn_moments,
    outcome_values,
    refuse_beyond,
)
from avem.data.expressions import Atom, add_atom, compile_offset, compile_side
from avem.data.formula import Formula, parse_formula
from avem.data.frames import column, examples, numbers
from avem.data.panel import Panel
from avem.data.tokens import MOMENTS
from avem.errors import ModelError


@dataclass(frozen=True, eq=False)
class DesignData:
    """A design's numbers in panel row order: Y (rows, p) with NaN where missing, A (rows, a).

    `incomplete` (rows,) marks rows where a lag looks back to nothing.
    """

    Y: np.ndarray
    A: np.ndarray
    incomplete: np.ndarray


@dataclass(frozen=True, eq=False)
class Design:
    """How to turn a panel into outcomes and covariates, with everything learned from the data.

    Attributes
    ----------
    formula : Formula
    outcomes : tuple of str
    terms, effect_terms : tuple of str
        Names of the fixed columns (m,) and of the effect columns (mz,).
    effect_blocks : tuple of int
        For each effect column, which group term it came from.
    columns, keys : tuple
        Names of the columns of A, and (term, name), which together fix the values. A column used
        by both sides is there once.
    x_cols, z_cols : tuple of int
        Which columns of A are the fixed ones and the effect ones.
    offset_col : int
        Which column of A is added to the linear predictor as it is; -1 where there is none.
    state : dict
        Formula, levels of categorical columns, mean and sd of centred and scaled ones, and knots
        and norms of bases (`bases`, where there are any): goes through JSON, and
        `Design.from_state` gives the same design back.
    """

    formula: Formula
    outcomes: tuple[str, ...]
    terms: tuple[str, ...]
    effect_terms: tuple[str, ...]
    effect_blocks: tuple[int, ...]
    columns: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    offset_col: int
    state: dict[str, Any]
    _sides: tuple[tuple[list[Column], dict[str, Atom]], ...] = field(repr=False)

    @classmethod
    def build(cls, formula: Formula, panel: Panel) -> "Design":
        """Return the design of a formula, its levels, means and sds learned from `panel`.

        Text and categorical columns become indicators, the first level being the reference where
        the intercept is present: ordered categoricals keep their order, others are sorted, and
        levels that do not occur are left out. Booleans are the numbers 0 and 1; wrap them in C()
        for levels. Scaling divides by the root mean square deviation (n, not n - 1).
        """
        for _, group in formula.groups[:1]:
            if group != panel.subject:
                raise ModelError(
                    f"The formula groups by {group!r}, but the panel's subject column is "
                    f"{panel.subject!r}. They must be the same."
                )
        levels: dict[str, list[Any]] = {}
        moments: dict[str, list[float]] = {}
        bases: dict[str, list[float]] = {}
        for atom in formula.atoms:
            for name in atom.columns:
                values = column(panel.table, name, f"a covariate in {formula.text!r}")
                if atom.is_categorical or (atom.tree is None and numbers(values) is None):
                    levels[atom.label] = learn_levels(values, atom.label)
            for label, function, name in atom.calls(*MOMENTS):
                column(panel.table, name, label)  # it is there
                parts = partial(panel.column_parts, name)
                moments[label] = learn_moments(parts, function, label)
            if atom.basis is not None:
                bases[atom.label] = learn_basis(partial(panel.column_parts, *atom.columns), atom)
        state = {"formula": formula.text, "levels": levels, "moments": moments}
        return cls.from_state(state | ({"bases": bases} if bases else {}))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Design":
        """Return the design that `state` describes; the state may come from a stranger's file."""
        _check_state(state)
        formula = parse_formula(state["formula"])
        sides = []
        known: dict[str, Atom] = {}
        place: dict[tuple[str, str], int] = {}  # by term and label, which together fix the values
        cols: list[tuple[int, ...]] = []
        for side in formula.sides:
            terms, atoms = compile_side(side)
            for atom in atoms.values():
                add_atom(known, atom, formula.text)
            levels = {label: state["levels"][label] for label in atoms if label in state["levels"]}
            keys = {label: atom.key for label, atom in atoms.items()}
            widths = {label: a.basis.n_columns for label, a in atoms.items() if a.basis}
            found = columns_of(terms, keys, levels, side, widths)
            cols.append(tuple(place.setdefault(one.key, len(place)) for one in found))
            sides.append((found, atoms))
            check_number(sum(map(len, cols)), formula.text)
        offset_col = -1
        if formula.offset:
            atom = compile_offset(formula.offset)
            add_atom(known, atom, formula.text)
            one = Column(f"offset {atom.key}", f"offset{atom.label[1:]}", ((atom.label, None),))
            offset_col = place.setdefault(one.key, len(place))
            sides.append(([one], {atom.label: atom}))
        _check_learned(state, known)
        z_cols = tuple(col for block in cols[1:] for col in block)
        names = tuple(label for _, label in place)
        twice = [names[col] for col, times in Counter(z_cols).items() if times > 1]
        if twice:
            raise ModelError(
                f"The effect {twice[0]!r} is in two group terms of {formula.text!r}. An intercept "
                "is implied: to leave it out of one, write (0 + x | subject)."
            )
        if not all(cols[1:]):
            raise ModelError(f"A group term of {formula.text!r} has no effects.")
        return cls(
            formula,
            formula.outcomes,
            tuple(names[col] for col in cols[0]),
            tuple(names[col] for col in z_cols),
            tuple(block for block, found in enumerate(cols[1:]) for _ in found),
            names,
            tuple(place),
            cols[0],
            z_cols,
            offset_col,
            dict(state),
            tuple(sides),
        )

    @property
    def covariates(self) -> tuple[str, ...]:
        """The data columns that the formula reads, outcomes and subject not counted."""
        atoms = [atom for _, side in self._sides for atom in side.values()]
        return tuple(dict.fromkeys(name for atom in atoms for name in atom.columns))

    def levels_of(self, name: str) -> list[Any] | None:
        """Return the levels of a column that the formula takes as categorical, else None."""
        for _, side in self._sides:
            for atom in side.values():
                if name in atom.columns and atom.label in self.state["levels"]:
                    return list(self.state["levels"][atom.label])
        return None

    def unknown(self, panel: Panel) -> np.ndarray:
        """Return (rows,) where a covariate is missing, or a lag looks back to nothing."""
        nowhere = np.zeros(panel.n_rows, bool)
        gaps = [
            atom_values(atom, panel, self.state, nowhere)[1]
            for _, atoms in self._sides
            for atom in atoms.values()
        ]
        return np.any([nowhere, *gaps], axis=0)

    def reads_now(self, names: set[str]) -> list[str]:
        """Return those of the named columns that a row reads at its own time, not at an earlier."""
        atoms = [atom for _, side in self._sides for atom in side.values()]
        found = {name for atom in atoms for name in set(atom.columns) - atom.lagged}
        return sorted(found & names)

    def lags(self, names: set[str]) -> int:
        """Return how many rows this design looks back at any of the named columns, 0 if not."""
        atoms = [atom for _, side in self._sides for atom in side.values()]
        return max((atom.furthest_back for atom in atoms if atom.lagged & names), default=0)

    def apply(
        self, panel: Panel, outcomes: bool = True, needed: np.ndarray | None = None
    ) -> DesignData:
        """Return the outcomes and design columns of a panel, in its row order.

        Parameters
        ----------
        panel : Panel
            The training panel or a new one.
        outcomes : bool
            With False the outcomes are not read and Y is all NaN: for data without them.
        needed : (rows,) bool array, optional
            The rows whose covariates are used, where a missing one is an error. By default those
            with an observed outcome, or all rows when there are no outcomes to look at. Elsewhere
            a missing covariate makes its columns 0.
        """
        Y = np.full((panel.n_rows, len(self.outcomes)), np.nan)
        if outcomes:
            for j, name in enumerate(self.outcomes):
                Y[:, j] = outcome_values(panel, name)
        if needed is None:
            known = outcomes and len(self.outcomes) > 0
            needed = np.asarray(~np.isnan(Y).all(axis=1)) if known else np.ones(panel.n_rows, bool)
        A = np.empty((panel.n_rows, len(self.columns)))
        incomplete = np.zeros(panel.n_rows, bool)
        for j, (values, unknown) in enumerate(self.each_column(panel, needed)):
            A[:, j] = values
            incomplete |= unknown
        return DesignData(Y, A, incomplete)

    def each_column(
        self, panel: Panel, needed: np.ndarray
    ) -> Iterator[tuple[np.ndarray | float, np.ndarray | bool]]:
        """Yield each column of A in turn, a constant as a number, and where a lag had no past."""
        ready: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        done: set[tuple[str, str]] = set()
        for columns, atoms in self._sides:
            for label in atoms.keys() - ready.keys():
                ready[label] = atom_values(atoms[label], panel, self.state, needed)
            no_past = np.any([ready[label][1] for label in atoms if atoms[label].lagged], axis=0)
            values = {label: ready[label][0] for label in atoms}
            for one in columns:
                if one.key in done:
                    continue
                done.add(one.key)
                if not one.factors:
                    yield 1.0, False
                    continue
                with np.errstate(over="ignore"):
                    found = one.values(values, panel.n_rows)
                for label, _ in one.factors:
                    found[ready[label][1]] = 0
                refuse_beyond(found, f"The covariate {one.label!r}", np.finfo(float).max)
                yield found, no_past


def has_intercept(formula: Formula) -> bool:
    """Whether the fixed side has an intercept, written or implied."""
    return () in compile_side(formula.fixed)[0]


def _check_learned(state: Mapping[str, Any], atoms: Mapping[str, Atom]) -> None:
    """Raise unless the state has what was learned for these atoms, and nothing else."""
    factors = {label for label, atom in atoms.items() if atom.is_categorical}
    plain = {label for label, atom in atoms.items() if atom.tree is None}
    moments = {label for atom in atoms.values() for label, *_ in atom.calls(*MOMENTS)}
    bases = {label: atom.basis for label, atom in atoms.items() if atom.basis is not None}
    learned = state.get("bases", {})
    odd = [label for label in bases.keys() & learned if not bases[label].is_learned(learned[label])]
    if odd:
        raise ModelError(f"The saved design's numbers of {examples(odd)} are damaged.")
    lacking = (factors - state["levels"].keys()) | (moments - state["moments"].keys())
    lacking |= bases.keys() - learned.keys()
    if lacking:
        raise ModelError(f"The saved design lacks what it learned for {examples(sorted(lacking))}.")
    unused = (state["levels"].keys() - factors - plain) | (state["moments"].keys() - moments)
    unused |= learned.keys() - bases.keys()
    if unused:
        raise ModelError(
            f"The saved design has learned of {examples(sorted(unused))}, which its formula does "
            "not have."
        )


def _check_state(state: Mapping[str, Any]) -> None:
    """Raise unless a saved state has the shape that `Design.build` gives it."""
    try:
        good = isinstance(state["formula"], str)
        odd = [label for label, levels in state["levels"].items() if not is_levels(levels)]
        for mean, sd in state["moments"].values():
            good &= bool(np.isfinite([mean, sd]).all()) and sd > 0
        good &= isinstance(state.get("bases", {}), dict)
    except (KeyError, TypeError, ValueError, AttributeError):
        good, odd = False, []
    if odd:
        raise ModelError(
            f"The saved design's levels of {examples(odd)} are none: a list of 2 to {MAX_LEVELS:,} "
            "different words or numbers is wanted."
        )
    if not good:
        raise ModelError("The saved design is damaged: formula, levels and moments are wanted.")
