"""What a model is made of: its linear predictors, its effects, and where each stands in theta.

A `Line` is one linear predictor as people know it: the mean of an outcome, the log odds of one of
its levels, its shape, or the log odds of a move between states. Every line has a design (terms) and
perhaps effects. The kernels read lines as column numbers; tables and parameter arrays read them as
names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from avem.components.outcome import Outcome
from avem.data.designs import Designs
from avem.families import Custom, Gaussian
from avem.families.base import Family
from avem.families.univariate import Univariate


@dataclass(frozen=True)
class Effect:
    """One coordinate of f."""

    outcome: str
    """Empty for transitions."""
    parameter: str
    """Empty for the location of an outcome."""
    term: str
    state: int | None
    """The state it acts in, or leaves; None when all states share it."""
    to_state: int | None
    block: tuple[int, int]
    """Effects of different blocks are independent."""

    @property
    def name(self) -> str:
        """ "outcome: term", with the parameter and the states where there are several."""
        if self.to_state is not None:
            return f"{self.state}->{self.to_state}: {self.term}"
        what = f"{self.outcome}.{self.parameter}" if self.parameter else self.outcome
        where = "" if self.state is None else f" [{self.state}]"
        return f"{what}: {self.term}{where}"


@dataclass(frozen=True)
class Line:
    """One linear predictor."""

    outcome: str
    parameter: str
    """Empty for the location of an outcome."""
    label: str
    """The outcome, or "outcome[level]"."""
    part: int
    """Which of the model's designs."""
    terms: tuple[str, ...]
    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of each effect."""

    def eta(
        self, coef: np.ndarray, a: np.ndarray, state: np.ndarray, effects: np.ndarray
    ) -> np.ndarray:
        """(rows,) the predictor, for rows with coefficients, design, state and effects each."""
        eta = (coef * a[:, list(self.x_cols)]).sum(1)
        if self.z_cols:
            acting = np.take_along_axis(effects, np.array(self.effects, int)[state], axis=1)
            eta = eta + (acting * a[:, list(self.z_cols)]).sum(1)
        return eta


@dataclass(frozen=True)
class Piece:
    """An emission block: its outcomes, family and lines."""

    key: str
    """Prefix of its entries in theta."""
    prefix: str
    """Prefix of its entries in the user's parameters."""
    spec: int
    outcomes: tuple[str, ...]
    family: Family
    lines: tuple[Line, ...]

    def etas(
        self, coef: np.ndarray, a: np.ndarray, state: np.ndarray, effects: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """(rows,) of each line, from this piece's ``coef`` in theta (states, ...)."""
        coef = coef.reshape(len(coef), -1)  # that of a Gaussian has an axis for the outcomes
        out, at = [], 0
        for line in self.lines:
            own = coef[state, at : at + len(line.terms)]
            at += len(line.terms)
            out.append(line.eta(own, a, state, effects))
        return tuple(out)


@dataclass(frozen=True)
class Structure:
    """All pieces and effects of a model."""

    pieces: tuple[Piece, ...]
    moves: tuple[Line, ...]
    """Log odds of going 1, 2, ... states on, against staying; empty: one matrix for all."""
    start: tuple[Line, ...]
    """Log odds of starting in state 1, 2, ... against 0; empty: free, or stationary."""
    effects: tuple[Effect, ...]


class _Effects:
    """Numbers the effects as they are met."""

    def __init__(self, structure: str) -> None:
        self.found: list[Effect] = []
        self._by_formula = structure == "block"

    def add(self, part: int, group: int, **what) -> int:
        self.found.append(Effect(block=(part if self._by_formula else 0, group), **what))
        return len(self.found) - 1


def build_structure(
    specs: Sequence[Outcome],
    families: Sequence[Sequence[Family]],
    designs: Designs,
    n_states: int,
    structure: str,
    transition_part: int | None,
    initial_part: int | None,
) -> Structure:
    """The structure of a model whose designs stand in the order of the specs' formulas."""
    effects = _Effects(structure)
    pieces: list[Piece] = []
    part = 0
    for number, (spec, of_spec) in enumerate(zip(specs, families, strict=True)):
        prefix = "" if len(specs) == 1 else f"{spec.name}."
        names = spec.formula.outcomes
        made = _Lines(designs, n_states, effects, spec.effects_by_state)
        if isinstance(spec.family, Gaussian):
            lines = tuple(made.line(part, name, "", name) for name in names)
            pieces.append(Piece(f"{len(pieces)}.", prefix, number, names, spec.family, lines))
        elif isinstance(spec.family, Custom):
            lines = (made.custom(part, names[0], spec.family),)
            pieces.append(Piece(f"{len(pieces)}.", prefix, number, names, spec.family, lines))
        else:
            own = {name: part + 1 + i for i, (name, _) in enumerate(spec.parameters)}
            for name, family in zip(names, of_spec, strict=True):
                assert isinstance(family, Univariate)
                lines = tuple(made.of_family(part, own, name, family))
                pieces.append(Piece(f"{len(pieces)}.", prefix, number, (name,), family, lines))
        part += len(spec.formulas)
    moves = start = ()
    if transition_part is not None and n_states > 1:
        moves = _moves(designs, transition_part, n_states, effects)
    if initial_part is not None and n_states > 1:
        made = _Lines(designs, 1, effects, False)
        start = tuple(
            made.line(initial_part, "", "initial", f"state {k}") for k in range(1, n_states)
        )
    return Structure(tuple(pieces), moves, start, tuple(effects.found))


@dataclass
class _Lines:
    designs: Designs
    n_states: int
    effects: _Effects
    by_state: bool

    def line(self, part: int, outcome: str, parameter: str, label: str, constant=False) -> Line:
        if constant:  # a parameter without a formula of its own is one number per state
            column = self.designs.names.index("Intercept")
            return Line(outcome, parameter, label, -1, ("Intercept",), (column,), (), self._none)
        design = self.designs.parts[part]
        places = []
        for state in range(self.n_states) if self.by_state else (None,):
            named = zip(design.effect_terms, design.effect_blocks, strict=True)
            places.append(
                tuple(
                    self.effects.add(
                        part,
                        group,
                        outcome=label if not parameter else outcome,
                        parameter=parameter,
                        term=term,
                        state=state,
                        to_state=None,
                    )
                    for term, group in named
                )
            )
        shared = tuple(places) if self.by_state else (places[0],) * self.n_states
        return Line(
            outcome,
            parameter,
            label,
            part,
            design.terms,
            self.designs.x_cols(part),
            self.designs.z_cols(part),
            shared,
        )

    @property
    def _none(self) -> tuple[tuple[int, ...], ...]:
        return ((),) * self.n_states

    def of_family(self, part: int, own: dict[str, int], outcome: str, family: Univariate):
        for i, parameter in enumerate(family.parameters):
            if i < family.n_location:
                label = f"{outcome}[{parameter.name}]" if family.by_level else outcome
                yield self.line(part, outcome, "", label)
            else:
                name = parameter.name
                yield self.line(own.get(name, -1), outcome, name, outcome, name not in own)

    def custom(self, part: int, outcome: str, family: Custom) -> Line:
        """The covariates and effects that a user's function sees."""
        design = self.designs.parts[part]
        places = tuple(
            self.effects.add(
                part, 0, outcome=outcome, parameter="", term=name, state=None, to_state=None
            )
            for name in family.effects
        )
        kept = [i for i, term in enumerate(design.terms) if term != "Intercept"]
        columns = self.designs.x_cols(part)
        return Line(
            outcome,
            "",
            outcome,
            part,
            tuple(design.terms[i] for i in kept),
            tuple(columns[i] for i in kept),
            (),
            (places,) * self.n_states,
        )


def _moves(designs: Designs, part: int, n_states: int, effects: _Effects) -> tuple[Line, ...]:
    design = designs.parts[part]
    places: dict[tuple[int, int], tuple[int, ...]] = {}
    for k in range(n_states):
        for to in range(n_states):
            if to == k:
                continue
            named = zip(design.effect_terms, design.effect_blocks, strict=True)
            places[k, (to - k) % n_states] = tuple(
                effects.add(part, group, outcome="", parameter="", term=term, state=k, to_state=to)
                for term, group in named
            )
    return tuple(
        Line(
            "",
            "transition",
            f"{j} on",
            part,
            design.terms,
            designs.x_cols(part),
            designs.z_cols(part),
            tuple(places[k, j] for k in range(n_states)),
        )
        for j in range(1, n_states)
    )


# --- moves between states: by how many states on (as the kernels have them), or as a matrix -----


def moves_as_matrix(by_distance: np.ndarray) -> np.ndarray:
    """(from, to, ...) from (from, states on - 1, ...); 0 for staying."""
    k = len(by_distance)
    here = np.arange(k)
    out = np.zeros((k, k, *by_distance.shape[2:]))
    for j in range(1, k):
        out[here, (here + j) % k] = by_distance[:, j - 1]
    return out


def moves_by_distance(matrix: np.ndarray) -> np.ndarray:
    """The inverse of `moves_as_matrix`."""
    k = len(matrix)
    here = np.arange(k)
    return np.stack([matrix[here, (here + j) % k] for j in range(1, k)], axis=1)
