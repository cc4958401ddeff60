"""A mixed HMM as the engine sees it: its structure, its units, and data sets laid out for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from avem.components.base import Component
from avem.components.clusters import SHARES, Clustered, Shares, Stack
from avem.components.duration import with_maximum
from avem.components.durations import Durations
from avem.components.effects import EffectCovariance
from avem.components.emission import Emission, subject_means
from avem.components.emissions import make_emissions
from avem.components.free import Free
from avem.components.free_durations import make_durations
from avem.components.initial import Initial, make_initial
from avem.components.lines import Builder, Effect, Line
from avem.components.outcome import learn_families
from avem.components.param_info import Params
from avem.components.scaling import Scaling
from avem.components.transitions import STICKINESS, Transitions
from avem.data import Design, Panel
from avem.data.clock import Clock
from avem.data.designs import Designs
from avem.data.layout import constant_in_lanes
from avem.families.base import Family
from avem.models.base import Model
from avem.models.cluster_process import ClusterProcess
from avem.models.encoded import Encoded, LaidOut, PanelData
from avem.models.hmm_kernel import HMMKernel
from avem.models.hmm_layout import Blocks, OneRow
from avem.models.hmm_numbering import cluster_order, orders_of, renumbered, state_order
from avem.models.hmm_reading import needed_rows, read_rows
from avem.models.hmm_restriction import free_under, moves_under, pinned_rows, restriction_of
from avem.models.hmm_scaling import learn_scaling
from avem.models.hmm_specification import Specification
from avem.models.known import learn_names
from avem.models.process import MarkovProcess, Process, SemiMarkovProcess
from avem.models.restriction import Restriction
from avem.numerics.rows import take_columns


class Structure(NamedTuple):
    """All components of a model, and its effects."""

    emissions: tuple[Emission, ...]
    initial: Initial
    transition: Transitions
    duration: Durations | None
    effects: tuple[Effect, ...]


@dataclass(frozen=True, eq=False)
class HMMModel(Model):
    """All that is fixed before the parameters are: states, families, designs, units."""

    size_name = "n_states"
    state_words = "state"
    one_per_core = False

    spec: Specification
    families: tuple[tuple[Family, ...], ...]
    designs: Designs
    scaling: Scaling
    averages: np.ndarray
    """(design columns,) of the data that the model was learned from, in the user's units."""
    silent: tuple[int, ...] = ()
    """The states that no row with an outcome could be in."""

    @classmethod
    def learn(cls, spec: Specification, panel: Panel) -> HMMModel:
        """The model with levels, moments and columns learned from a panel, in the user's units."""
        if spec.known is not None and not spec.state_names and spec.known in panel.table.columns:
            spec = spec._replace(state_names=learn_names(panel, spec.known, spec.n_states))
        spec = spec._replace(transition=spec.transition.named(spec.state_names))
        if spec.duration is not None:
            longest = int(panel.lane_length.max(initial=1))
            spec = spec._replace(duration=with_maximum(spec.duration, longest))
        families = tuple(learn_families(outcome, panel) for outcome in spec.outcomes)
        parts = tuple(Design.build(formula, panel) for formula in spec.formulas)
        designs = Designs(parts, spec.transition.clock)
        n_outcomes = sum(1 + family.n_beside for of_spec in families for family in of_spec)
        scaling = Scaling.none(n_outcomes, len(designs.keys), designs.names.index("Intercept"))
        constant = (np.arange(len(designs.keys)) == scaling.constant).astype(float)
        return cls(spec, families, designs, scaling, averages=constant)

    def scaled_to(self, data: PanelData) -> HMMModel:
        """The same model with the units and averages of a data set."""
        return replace(self.averaged_over(data), scaling=learn_scaling(self, data))

    def averaged_over(self, data: PanelData) -> HMMModel:
        """The same model with the averages of a data set."""
        could_be = data.could_be(self.outcome_columns)
        silent = () if could_be is None else tuple(np.flatnonzero(~could_be).tolist())
        means = data.design_means(self.outcome_columns)
        return replace(self, averages=means, silent=silent)

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
    def transition_part(self) -> int:
        """Which of the designs is that of the transitions; those of the outcomes come before."""
        return sum(len(outcome.formulas) for outcome in self.spec.outcomes)

    @property
    def parts_ahead(self) -> tuple[Design, ...]:
        """The designs that later rows of a sequence read: of the outcomes, and of the moves."""
        n = self.transition_part
        parts = self.designs.parts[: n + bool(self.transition.lines)]
        return parts if self.duration is None else (*parts, self.designs.parts[-2])

    @cached_property
    def structure(self) -> Structure:
        """Components and effects."""
        part, n_states = self.transition_part, self.n_states
        builder = Builder(self.designs, n_states, self.effect_covariance == "block")
        emissions = make_emissions(self.spec.outcomes, self.families, builder)
        given = self.spec.transition.in_closed_form(n_states, self.stationary)
        transition = given.bound(n_states, part, builder)
        initial = make_initial(self.spec.initial, n_states, part + 1, builder)
        duration = None
        if self.spec.duration is not None:
            own = len(self.designs.parts) - 2  # the constant is the last
            duration = make_durations(self.spec.duration, n_states, own, builder)
        return Structure(emissions, initial, transition, duration, tuple(builder.effects))

    @property
    def emissions(self) -> tuple[Emission, ...]:
        """The components that emit outcomes."""
        return self.structure.emissions

    @property
    def initial(self) -> Initial:
        """The component of the first state."""
        return self.structure.initial

    @property
    def transition(self) -> Transitions:
        """The component of the transitions."""
        return self.structure.transition

    @property
    def duration(self) -> Durations | None:
        """The component of how long states last; None: as in a Markov chain."""
        return self.structure.duration

    @property
    def state_lines(self) -> tuple[Line, ...]:
        """The linear predictors of the states: of transitions, durations and the first state."""
        stays = () if self.duration is None else self.duration.lines
        return (*self.transition.lines, *stays, *self.initial.lines)

    @property
    def n_clusters(self) -> int:
        """Types of subjects, each with a chain of its own."""
        return self.spec.n_clusters

    @property
    def _of_one(self) -> tuple[Component, ...]:
        """The components of one type's chain: first state, moves, stays."""
        stays = () if self.duration is None else (self.duration,)
        return (self.initial, self.transition, *stays)

    @cached_property
    def chain(self) -> tuple[Component, ...]:
        """The components of the states; where subjects are of several types, those of all."""
        if self.n_clusters == 1:
            return self._of_one
        n = self.n_clusters
        return (Shares(n), *(Clustered(component, n) for component in self._of_one))

    @cached_property
    def stack(self) -> Stack:
        """Where theta has what belongs to each type of subject."""
        middle = {k: v for component in self._of_one for k, v in component.middle().items()}
        return Stack.of(self.n_clusters, middle)

    def of_one_cluster(self) -> HMMModel:
        """The model of the subjects of one type."""
        return replace(self, spec=self.spec._replace(n_clusters=1, constraints=(), priors=()))

    def params_of(self, params: Params, c: int) -> Params:
        """The parameters of the subjects of one type, in the user's units."""
        own = {name for component in self._of_one for name in component.param_info()}
        found = {name: value[c] if name in own else value for name, value in params.items()}
        found.pop(SHARES, None)
        return found

    def theta_of(self, theta: Params, c: int) -> Params:
        """Theta of the subjects of one type."""
        return self.stack.own(theta, c) if self.n_clusters > 1 else theta

    def with_clusters(self, theta: Params, order: np.ndarray) -> Params:
        """The same parameters, cluster c being what `order[c]` was."""
        own = [self.stack.own(theta, int(c)) for c in order]
        new = self.stack.joined([{key: one[key] for key in self.stack.keys} for one in own])
        return {**theta, **new, SHARES: theta[SHARES][order]}

    def cluster_order(self, theta: Params) -> np.ndarray:
        """The largest first, unless constraints or priors tell clusters apart."""
        return cluster_order(self, theta, self._rule)

    @property
    def emission_params(self) -> set[str]:
        """Names of the parameters that say something of the outcomes."""
        return {name for emission in self.emissions for name in emission.param_info()}

    def _make_parts(self) -> tuple[Component, ...]:
        return (*self.chain, *self.emissions)

    def _make_prior(self) -> EffectCovariance:
        effects = self.structure.effects
        blocks = [effect.block for effect in effects]
        return EffectCovariance(
            names=tuple(effect.name for effect in effects),
            where=tuple(effect.where for effect in effects),
            arrays=(("effect_covariance", tuple(range(len(effects)))),),
            structure=self.effect_covariance,
            blocks=tuple(blocks.index(block) for block in blocks),
            units=self.effect_units,
        )

    @property
    def extras(self) -> tuple[str, ...]:
        return tuple(name for emission in self.emissions for name in emission.family.extras_ahead)

    @property
    def extras_behind(self) -> tuple[str, ...]:
        families = [emission.family for emission in self.emissions]
        return tuple(n for family in families for n in family.extras if n not in self.extras)

    @property
    def effect_names(self) -> list[str]:
        return [effect.name for effect in self.structure.effects]

    @property
    def effect_labels(self) -> list[str]:
        return [effect.named(self.state_names) for effect in self.structure.effects]

    @property
    def n_columns(self) -> int:
        """Columns of Y: the outcomes, and what their families read beside them."""
        return sum(len(emission.y_cols) for emission in self.emissions)

    @property
    def outcome_columns(self) -> list[int]:
        """Columns of Y that hold outcomes, not what families read beside them."""
        return [c for emission in self.emissions for c in emission.y_cols[: len(emission.outcomes)]]

    # --- states ---------------------------------------------------------------------------------

    @property
    def keeps_order(self) -> bool:
        """The states have an order of their own."""
        stays = self.duration is not None and self.duration.keeps_order
        own = self.transition.keeps_order or stays or self.spec.known is not None
        return own or self.orders is not None

    @cached_property
    def _rule(self) -> Restriction | None:
        return restriction_of(self, (), self.middle(), strict=False)

    @cached_property
    def orders(self) -> list[tuple[int, ...]] | None:
        """The renumberings of states that leave the model as it is; None: all of them."""
        return orders_of(self, self._rule, self.transition.orders())

    def restriction(
        self, fixed: Collection[str], theta: Params, strict: bool = True
    ) -> Restriction | None:
        return restriction_of(self, fixed, theta, strict)

    def log_prior(self, theta: Params) -> float:
        return 0.0 if self._rule is None else self._rule.log_prior(theta)

    def prior_slope(self, theta: Params) -> Params:
        if not self.spec.priors or self._rule is None:
            return {}
        return self._rule.prior_slope(theta)

    def pinned_rows(self, fixed: Collection[str], theta: Params) -> np.ndarray:
        return pinned_rows(self, restriction_of(self, fixed, theta, strict=False))

    def possible_moves(self) -> np.ndarray:
        """(from, to) bool: which there are, also by constraints."""
        return moves_under(self, self._rule)

    @property
    def clock(self) -> Clock | None:
        """That of the moves, which then have rates."""
        return self.spec.transition.clock

    @property
    def marks(self) -> tuple[str, ...]:
        """Columns that say something of single rows' states; they may be missing anywhere."""
        named = (self.spec.known, None if self.clock is None else self.clock.event)
        return tuple(name for name in named if name is not None)

    def events(self, A: np.ndarray) -> np.ndarray:
        """(rows,) bool: where an absorbing state was entered exactly then."""
        columns = self.designs.clock_cols
        return A[:, columns[1]] > 0 if columns else np.zeros(len(A), bool)

    def relabelled(self, theta: Params, order: np.ndarray) -> tuple[Params, np.ndarray]:
        """The same parameters with the states renumbered, and (d, d) what turns effects."""
        return renumbered(self, theta, order)

    def chain_start(self, mean_stay: np.ndarray | float = 1 / (1 - STICKINESS)) -> Params:
        """The entries of theta of first state, moves and stays before anything is known."""
        constant = self.scaling.constant
        found = {**self.initial.start(), **self.transition.start(constant)}
        if self.duration is not None:
            found |= self.duration.start(constant, mean_stay)
        if self.n_clusters == 1:
            return found
        shares = np.full(self.n_clusters, 1 / self.n_clusters)
        return {SHARES: shares, **self.stack.joined([found] * self.n_clusters)}

    def state_order(self, theta: Params, data: Encoded) -> np.ndarray:
        """States by the first outcome's mean at the average covariates, lowest first.

        As far as neither labels nor the possible moves tell them apart.
        """
        return state_order(self, theta, data, self._rule)

    def all_free(self, fixed: Collection[str]) -> Free:
        """What is free inside all bounds, constraints apart."""
        return super().find_free(self.middle(), fixed, np.ones(len(self.scaling.scale)))

    def find_free(self, theta: Params, fixed: Collection[str], spread: np.ndarray) -> Free:
        found = super().find_free(theta, fixed, spread)
        return free_under(self, found, theta, self.restriction(fixed, theta, strict=False))

    def collapsed(self, theta: Params, spread: np.ndarray, floor: float) -> np.ndarray:
        """(states, outcome columns) densities that are held from closing in on a single value."""
        found = [emission.collapsed(theta, spread, floor) for emission in self.emissions]
        return np.concatenate(found, axis=1)

    # --- data -----------------------------------------------------------------------------------

    def in_units(self, y: np.ndarray) -> np.ndarray:
        found = [e.in_units(take_columns(y, e.y_cols)) for e in self.emissions]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def by_lane(self, panel: Panel, A: np.ndarray) -> bool:
        if self.duration is None or not self.duration.columns:
            return True
        return constant_in_lanes(panel, A[:, sorted(self.duration.columns)])

    def read(
        self, panel: Panel, outcomes: bool = True, only: np.ndarray | None = None
    ) -> PanelData:
        """The panel's outcomes and design columns; `only` (rows,) bool must have all they need."""
        return read_rows(self, panel, outcomes, only)

    def needed(self, panel: Panel, y: np.ndarray) -> list[np.ndarray]:
        """(rows,) bool for each design: where its covariates are used, if y are the outcomes."""
        return needed_rows(self, panel, y)

    def features(self, y: np.ndarray) -> list[np.ndarray]:
        """For each emission, (rows, features) in which states lie apart; NaN where missing."""
        return [emission.features(take_columns(y, emission.y_cols)) for emission in self.emissions]

    def start_means(self, y: np.ndarray, subject: np.ndarray, n_subjects: int) -> np.ndarray:
        """(subjects, features) the subjects' means of all features."""
        return subject_means(np.concatenate(self.features(y), axis=1), subject, n_subjects)

    def laid_out(
        self,
        y: np.ndarray,
        a: np.ndarray,
        later: np.ndarray,
        possible: np.ndarray | None = None,
        by_lane: bool = True,
    ) -> LaidOut:
        """Kernel, masks, patterns and lists of rows; ``later`` (rows,) are not the first ones.

        ``possible`` (rows, states) is where they may be; `by_lane`: what durations read does not
        change within a sequence.
        """
        made = Blocks(y, a, self.n_effects, self.scaling.constant)
        every = self.stationary or not later.any()
        kernel = self._kernel(made, np.ones(len(y), bool) if every else later, by_lane)
        # Where a row cannot be, not where it can: nothing is impossible in a padded one.
        ruled_out = () if possible is None else made.mask(~possible)
        kernel = replace(kernel, ruled_out=ruled_out)
        return LaidOut(kernel, made.masks, made.patterns, made.lists, made.telling)

    def _kernel(self, made: Blocks, rows: np.ndarray, by_lane: bool) -> HMMKernel:
        """The kernel of a data set; `rows` are those that a step leads into.

        ``by_lane``: covariates of durations do not change within sequences.
        """
        emissions = tuple(emission.block(made) for emission in self.emissions)
        transition = self.transition.block(made, rows)
        chain = self.initial.block(made, transition), transition
        process: Process = MarkovProcess(*chain)
        if self.duration is not None:
            process = SemiMarkovProcess(*chain, self.duration.block(made, by_lane))
        if self.n_clusters > 1:
            pairs = zip(self.chain[1:], process.blocks, strict=True)
            clustered = tuple(cast(Clustered, part).block_of(own) for part, own in pairs)
            process = ClusterProcess(process, self.stack, clustered)
        return HMMKernel(self.n_states, self.n_effects, emissions, process)

    def one_row(self, y: np.ndarray, a: np.ndarray) -> tuple[HMMKernel, np.ndarray]:
        """The kernel of a single row (1, columns), and its masks (1, groups) of outcomes seen."""
        made = OneRow(y, a, self.n_effects, self.scaling.constant)
        return self._kernel(made, np.ones(1, bool), by_lane=False), made.masks


def by_spec(model: HMMModel) -> list[list[Emission]]:
    """The emissions that come from one formula, together."""
    numbers = sorted({emission.spec for emission in model.emissions})
    return [[e for e in model.emissions if e.spec == number] for number in numbers]
