"""A mixed HMM as the engine sees it: its structure, its units, and data sets laid out for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from avem.components.chain import Chain
from avem.components.emissions import Block, CustomBlock, GaussianBlock, GeneralBlock
from avem.components.linear import GeneralKernel, Predictor
from avem.components.outcome import Outcome, learn_families, read_outcome
from avem.components.scaling import Scaling, spread
from avem.components.structure import Line, Piece, Structure, build_structure
from avem.data import Design, Panel, parse_formula
from avem.data.designs import Designs
from avem.data.formula import Formula
from avem.data.layout import Chunk, Layout, build_layout
from avem.families import Custom, Family, Gaussian
from avem.families.categorical import Counts
from avem.families.gaussian import GaussianKernel
from avem.models.hmm_kernel import HMMKernel
from avem.numerics.precision import in_float64

_LANES_ON_CPU = 1024
"""Chunks that stay in a core's cache; an accelerator wants all lanes at once."""
_LANES_ELSEWHERE = 1 << 20
_MAX_CELLS = 64
"""Rows are gathered into cells when no more than this many different ones occur."""


class Specification(NamedTuple):
    """What the user asked for, before any data."""

    n_states: int
    outcomes: tuple[Outcome, ...]
    transition: Formula
    initial: Formula | None
    """None: the stationary distribution."""
    effect_covariance: str

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """All formulas: of the outcomes and their parameters, of the chain, and a constant."""
        of_outcomes = [formula for spec in self.outcomes for formula in spec.formulas]
        return (*of_outcomes, *self.state_formulas, parse_formula("~ 1"))

    @property
    def state_formulas(self) -> tuple[Formula, ...]:
        """Those of the transitions and of the first state."""
        return (self.transition, *([self.initial] if self.initial is not None else []))

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The columns of all outcomes."""
        return tuple(name for spec in self.outcomes for name in spec.formula.outcomes)

    @property
    def has_history(self) -> bool:
        """A family remembers earlier outcomes."""
        return any(spec.family.has_history for spec in self.outcomes)

    @property
    def text(self) -> str:
        """The outcomes' formulas in one line."""
        return "; ".join(spec.formula.text for spec in self.outcomes)


class HMMData(NamedTuple):
    """A panel's numbers in the user's units, in row order."""

    Y: np.ndarray
    """(rows, outcome columns), NaN where missing."""
    A: np.ndarray
    """(rows, design columns)."""
    n_without_past: int
    """Observed outcomes that are not modelled because a lag looks back to nothing."""


@dataclass(frozen=True, eq=False)
class HMMModel:
    """All that is fixed before the parameters are: states, families, designs, units."""

    spec: Specification
    families: tuple[tuple[Family, ...], ...]
    designs: Designs
    scaling: Scaling
    averages: np.ndarray
    """(design columns,) of the data that the model was learned from, in the user's units."""

    @classmethod
    def learn(cls, spec: Specification, panel: Panel) -> HMMModel:
        """The model with levels, moments and columns learned from a panel, in the user's units."""
        families = tuple(learn_families(outcome, panel) for outcome in spec.outcomes)
        designs = Designs(tuple(Design.build(formula, panel) for formula in spec.formulas))
        n_outcomes = sum(1 + len(family.extras) for of_spec in families for family in of_spec)
        scaling = Scaling.none(n_outcomes, len(designs.keys), designs.names.index("Intercept"))
        constant = (np.arange(len(designs.keys)) == scaling.constant).astype(float)
        return cls(spec, families, designs, scaling, averages=constant)

    def scaled_to(self, data: HMMData) -> HMMModel:
        """The same model with the units and averages of a data set."""
        scaling = Scaling.learn(
            self.structure,
            self.y_cols,
            data.Y,
            data.A,
            self.scaling.constant,
            self.effect_covariance,
        )
        return replace(self.averaged_over(data), scaling=scaling)

    def averaged_over(self, data: HMMData) -> HMMModel:
        """The same model with the averages of a data set."""
        return replace(self, averages=data.A[~np.isnan(data.Y).all(axis=1)].mean(0))

    def in_user_units(self) -> HMMModel:
        """The same model without any scaling."""
        n_outcomes, n_columns = len(self.scaling.centre), len(self.scaling.column_scale)
        return replace(self, scaling=Scaling.none(n_outcomes, n_columns, self.scaling.constant))

    # --- what it is made of ---------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        """Number of states."""
        return self.spec.n_states

    @property
    def stationary(self) -> bool:
        """The chain starts in its stationary distribution."""
        return self.spec.initial is None and self.n_states > 1

    @property
    def effect_covariance(self) -> str:
        """The structure of Sigma."""
        return self.spec.effect_covariance

    @property
    def _transition_part(self) -> int:
        return sum(len(outcome.formulas) for outcome in self.spec.outcomes)

    @property
    def parts_ahead(self) -> tuple[Design, ...]:
        """The designs that later rows of a sequence read: of the outcomes, and of the moves."""
        n = self._transition_part
        return self.designs.parts[: n + bool(self.structure.moves)]

    @cached_property
    def structure(self) -> Structure:
        """Pieces, lines and effects."""
        part = self._transition_part
        moves, initial = self.spec.transition, self.spec.initial
        plain_moves = moves.fixed == "1" and not moves.groups and not self.stationary
        plain_start = initial is None or initial.fixed == "1"
        return build_structure(
            self.spec.outcomes,
            self.families,
            self.designs,
            self.n_states,
            self.effect_covariance,
            None if plain_moves else part,
            None if plain_start else part + 1,
        )

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of all outcomes."""
        return tuple(name for piece in self.structure.pieces for name in piece.outcomes)

    @property
    def n_effects(self) -> int:
        """Number of effects of a subject, d."""
        return len(self.structure.effects)

    @property
    def effect_names(self) -> list[str]:
        """Name of each effect."""
        return [effect.name for effect in self.structure.effects]

    @property
    def effect_blocks(self) -> np.ndarray:
        """(d,) effects of different blocks are independent."""
        blocks = [effect.block for effect in self.structure.effects]
        return np.array([blocks.index(block) for block in blocks], int)

    @cached_property
    def y_cols(self) -> tuple[tuple[int, ...], ...]:
        """For each piece, its columns of Y: the outcomes, then what its family reads beside."""
        out, at = [], 0
        for piece in self.structure.pieces:
            width = len(piece.outcomes) + len(piece.family.extras)
            out.append(tuple(range(at, at + width)))
            at += width
        return tuple(out)

    @property
    def outcome_columns(self) -> list[int]:
        """Columns of Y that hold outcomes, not what families read beside them."""
        return [c for piece, at in self.each_piece() for c in at[: len(piece.outcomes)]]

    def each_piece(self) -> Iterator[tuple[Piece, tuple[int, ...]]]:
        """Every piece with its columns of Y."""
        return zip(self.structure.pieces, self.y_cols, strict=True)

    # --- data -----------------------------------------------------------------------------------

    def read(self, panel: Panel, outcomes: bool = True) -> HMMData:
        """The panel's outcomes and design columns."""
        columns = []
        for piece in self.structure.pieces:
            if outcomes:
                columns += [read_outcome(piece.family, panel, name) for name in piece.outcomes]
        width = self.y_cols[-1][-1] + 1
        Y = np.concatenate(columns, axis=1) if outcomes else np.full((panel.n_rows, width), np.nan)
        needed, must = self._needed(panel, Y if outcomes else None)
        found = self.designs.apply(panel, needed, must)
        n_without_past = 0
        for piece, at in self.each_piece():
            for j in range(len(piece.outcomes)):
                parts = {line.part for line in piece.lines if line.part >= 0}
                lost = np.any([found.incomplete[part] for part in parts], axis=0)
                lost &= ~np.isnan(Y[:, at[j]])
                n_without_past += int(lost.sum())
                Y[lost, at[j]] = np.nan
        return HMMData(Y, found.A, n_without_past)

    def _needed(self, panel: Panel, Y: np.ndarray | None) -> tuple[list[np.ndarray], list[bool]]:
        """Where each design's covariates are used, and whether a lag must have a past there."""
        everywhere = np.ones(panel.n_rows, bool)
        seen: dict[int, np.ndarray] = {}
        for piece, at in self.each_piece():
            observed = everywhere if Y is None else ~np.isnan(Y[:, list(at)]).all(axis=1)
            for line in piece.lines:
                seen[line.part] = seen.get(line.part, ~everywhere) | observed
        later = panel.row_step > 0
        part = self._transition_part
        needed = []
        for number in range(len(self.designs.parts)):
            if number < part:
                needed.append(seen.get(number, ~everywhere))
            elif number == part:
                first = self.stationary and bool(self.structure.moves)
                needed.append(everywhere if first else later & bool(self.structure.moves))
            else:
                needed.append(~later & bool(self.structure.start))
        return needed, [number >= part for number in range(len(self.designs.parts))]

    @in_float64
    def encode(self, panel: Panel, data: HMMData | None = None, max_lanes: int = 0) -> Encoded:
        """The panel laid out for this model, on the device."""
        data = self.read(panel) if data is None else data
        y, a = self.scaling.data_in(data.Y, data.A)
        if not max_lanes:
            max_lanes = _LANES_ON_CPU if jax.default_backend() == "cpu" else _LANES_ELSEWHERE
        layout = build_layout(panel, max_lanes)
        made = _Blocks(self, panel, y, a)
        kernel = HMMKernel(self.n_states, self.n_effects, tuple(made.blocks()), made.chain())
        filled = layout.chunks(
            np.nan_to_num(y), a, np.concatenate(made.seen, axis=1), made.patterns, made.lists
        )
        return Encoded(
            panel=panel,
            y=y,
            a=a,
            layout=layout,
            chunks=tuple(jax.device_put(chunk) for chunk in filled),
            kernel=kernel,
            spread=np.array([spread(column) ** 2 for column in y.T]),
            n_without_past=data.n_without_past,
        )


class _Blocks:
    """Turns pieces and data into the kernels' blocks, with masks and patterns."""

    def __init__(self, model: HMMModel, panel: Panel, y: np.ndarray, a: np.ndarray) -> None:
        self.model, self.panel, self.y, self.a = model, panel, y, a
        self.seen: list[np.ndarray] = []
        self.patterns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.lists: list[np.ndarray] = []

    def blocks(self):
        for piece, at in self.model.each_piece():
            yield self._block(piece, at)

    def _block(self, piece: Piece, at: tuple[int, ...]) -> Block:
        n_states, family = self.model.n_states, piece.family
        column = sum(part.shape[1] for part in self.seen)
        observed = ~np.isnan(self.y[:, list(at)])
        if isinstance(family, Gaussian):
            groups, seen = family.groups(observed)
            self.seen.append(seen)
            line = piece.lines[0]
            effects = tuple(
                tuple(place for line in piece.lines for place in line.effects[k])
                for k in range(n_states)
            )
            kernel = GaussianKernel(
                family,
                n_states,
                len(piece.outcomes),
                line.x_cols,
                line.z_cols,
                groups,
                effects,
                self.model.n_effects,
            )
            columns = tuple(range(column, column + seen.shape[1]))
            return GaussianBlock(piece.key, kernel, at, columns)
        self.seen.append(observed[:, :1])
        if isinstance(family, Custom):
            line = piece.lines[0]
            family.check(line.terms)
            return CustomBlock(
                piece.key, family, n_states, line.terms, line.x_cols, line.effects, at[0], column
            )
        kernel = self._kernel(family, family.concave, n_states, piece.lines)
        pattern = self._pattern(piece.lines, at, observed[:, 0])
        listed = self._list(observed[:, 0]) if pattern < 0 else -1
        return GeneralBlock(piece.key, kernel, at, column, pattern, listed)

    def _list(self, rows: np.ndarray) -> int:
        """The number of the list of these rows; outcomes seen together share one."""
        for number, known in enumerate(self.lists):
            if (known == rows).all():
                return number
        self.lists.append(rows)
        return len(self.lists) - 1

    def _kernel(self, density, concave, n_states, lines: Sequence[Line]) -> GeneralKernel:
        constant = (self.model.scaling.constant,)
        predictors = tuple(
            Predictor(
                line.x_cols, line.z_cols, line.effects, line.x_cols == constant and not line.z_cols
            )
            for line in lines
        )
        return GeneralKernel(density, n_states, self.model.n_effects, predictors, concave)

    def _pattern(self, lines: Sequence[Line], y_cols: tuple[int, ...], rows: np.ndarray) -> int:
        """The number of the pattern made of these rows; -1 when too many of them differ."""
        columns = sorted({c for line in lines for c in (*line.x_cols, *line.z_cols)})
        values = np.concatenate([self.y[:, list(y_cols)], self.a[:, columns]], axis=1)[rows]
        codes = _alike(values)
        if codes is None:
            return -1
        first = np.unique(codes, return_index=True)[1]
        index = np.full(len(rows), _rounded(len(first)))
        index[rows] = codes
        at = np.flatnonzero(rows)[first]
        # Similar data sets share compiled code: further cells, which no row belongs to.
        at = np.concatenate([at, np.repeat(at[:1], _rounded(len(at)) - len(at))])
        self.patterns.append((index, self.y[at], self.a[at]))
        return len(self.patterns) - 1

    def chain(self) -> Chain:
        model, structure = self.model, self.model.structure
        k = model.n_states
        start = moves = None
        pattern, n_cells = -1, 1
        if structure.start:
            start = self._kernel(Counts(k), True, 1, structure.start)
        if structure.moves:
            moves = self._kernel(Counts(k), True, k, structure.moves)
            rows = self.panel.row_step > 0
            rows = rows if rows.any() else ~rows
            if model.stationary:
                rows = np.ones(self.panel.n_rows, bool)
            pattern = self._pattern(structure.moves, (), rows)
            n_cells = len(self.patterns[pattern][2]) if pattern >= 0 else 0
        return Chain(k, start, model.stationary, moves, pattern, n_cells)


def _rounded(n_cells: int) -> int:
    return n_cells if n_cells <= 2 else 4 if n_cells <= 4 else -(-n_cells // 8) * 8


def _alike(values: np.ndarray) -> np.ndarray | None:
    """Number of each row's kind, 0, 1, ...; None when more than a few kinds occur."""
    if not len(values):
        return None
    codes = np.zeros(len(values), int)
    for column in values.T:
        own = pd.factorize(column, use_na_sentinel=False)[0]
        if own.max() >= _MAX_CELLS:
            return None
        codes = pd.factorize(codes * _MAX_CELLS + own)[0]
        if codes.max() >= _MAX_CELLS:
            return None
    return codes


@dataclass(frozen=True, eq=False)
class Encoded:
    """One data set, ready to compute on."""

    panel: Panel
    y: np.ndarray
    """(rows, outcome columns) on the scale of the fit, NaN where missing."""
    a: np.ndarray
    layout: Layout
    chunks: tuple[Chunk, ...]
    kernel: HMMKernel
    spread: np.ndarray
    """(outcome columns,) variance of each, not counting a few wild values."""
    n_without_past: int

    def in_user_units(self, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes and design columns, (rows, columns) each, as the user has them."""
        return scaling.data_out(self.y, self.a)
