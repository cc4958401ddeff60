"""What `MixedHMM` and `MixedSSM` do alike, for users and for those who make many fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np

from avem.components.param_info import Params, check_count, check_seed
from avem.data import Panel
from avem.data.carrying import nothing_before
from avem.data.grouping import blank_frame, read_panel, subject_column
from avem.data.scanning.memory import need_rows
from avem.errors import DataError, ModelError
from avem.fits.notebook import facts, model_facts
from avem.inference.methods.names import check_names
from avem.inference.options import Options
from avem.models.encoded import PanelData
from avem.models.scan_reading import crew_for, read_scan, witnessed


class Mixed(ABC):
    """A model that can be fitted, as `select`, `cross_validate` and `bootstrap` see it."""

    spec: Any
    size_name: ClassVar[str]
    """What the number of its states is called."""
    state_words: ClassVar[str]
    """What one of them is called."""
    size_option: ClassVar[str]
    """The option of `select` that takes several numbers of them."""
    own_criteria: ClassVar[tuple[str, ...]]
    """Methods of its fits that give criteria which not every model has."""
    _model_type: ClassVar[Any]
    """The model as the engine sees it."""
    _group: str | None
    """The column of the subjects, if it is known."""
    _learned: Any = None
    """A model whose levels and columns are to be taken."""

    def __repr__(self) -> str:
        size = f"{self.size_name}={getattr(self.spec, self.size_name)}"
        chosen = [f"{name}={code}" for name, code in self.spec.options.items()]
        return f"{type(self).__name__}({', '.join([repr(self.spec.text), size, *chosen])})"

    def _repr_html_(self) -> str:
        return facts(type(self).__name__, model_facts(self.spec, self.size_name))

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: Any, learned: Any = None) -> Self:
        """The model with this specification."""

    @abstractmethod
    def usual_sizes(self) -> range:
        """The numbers of states that `select` tries unless told otherwise."""

    @abstractmethod
    def fit(self, data: Any, *args: Any, **options: Any) -> Any:
        """The model fitted to data."""

    @abstractmethod
    def _check_size(self, size: Any) -> None:
        """Raise unless it can have so many states."""

    @abstractmethod
    def _check_data(self, model: Any, panel: Panel, data: PanelData) -> None:
        """Raise unless the data can carry the model."""

    @abstractmethod
    def _levels(self) -> Iterable[tuple[str, tuple | None]]:
        """Every outcome with its levels: None where it is a number, none where not known."""

    def with_size(self, size: int) -> Self:
        """The same model with another number of states, which then have no names.

        Parameters
        ----------
        size : int
            Number of states, or of latent states.

        Returns
        -------
        MixedHMM or MixedSSM

        Examples
        --------
        >>> avem.MixedHMM("y ~ 1", n_states=2).with_size(3).spec.n_states
        3
        """
        self._check_size(size)
        other, spec = copy(self), self.spec
        if len(spec.state_names) != size:
            spec = spec.renamed(())
        other.spec = spec._replace(**{self.size_name: int(size)})
        return other

    def has_effects(self) -> bool:
        """Whether subjects differ.

        Returns
        -------
        bool

        Examples
        --------
        >>> avem.MixedHMM("y ~ 1", n_states=2).has_effects()
        False
        """
        return any(formula.groups for formula in self.spec.formulas)

    # --- inside ---------------------------------------------------------------------------------

    def _options(self, method: Any, refine: Any, others: dict[str, Any], **shared: Any) -> Options:
        """The options of `fit` as one record; `others` are those that it has no name for."""
        own = [name for name in signature(self.fit).parameters if name != "of_method"]
        check_names(others, own)
        return Options.read(method, refine, others, **shared)

    def _panel(
        self, data: Any, subject: str | None, time: str | None, sequence: str | None
    ) -> Panel:
        """A user's data as a panel."""
        return read_panel(data, subject_column(self._group, subject), time, sequence)

    def _learn(self, panel: Any) -> Any:
        """The model with the levels and columns of a panel, or those that it already has."""
        if self._learned is None:
            return self._model_type.learn(self.spec, panel)
        return replace(self._learned, spec=self.spec)

    def _model(self, panel: Any, plain: bool, client: Any = None) -> tuple[Any, Any]:
        """The model with the units of a panel, and the panel's numbers.

        Those of a scan are read by the workers of a Dask `client`, if there is one.
        """
        crew, model = crew_for(panel, client), self._learn(panel)
        try:
            data: Any = model.read(panel) if panel.in_memory else read_scan(model, panel, crew)
        except DataError as error:
            if panel.carried is None:
                raise
            raise nothing_before(panel.carried.columns, error) from None
        seen: Any = (panel, data) if panel.in_memory else witnessed(model, data)
        self._check_data(model, *seen)
        return (model.averaged_over(data) if plain else model.scaled_to(data)), data

    @property
    def _covariates(self) -> list[str]:
        """The columns that its formulas read, outcomes not counted."""
        atoms = [atom for formula in self.spec.formulas for atom in formula.atoms]
        names = [name for atom in atoms for name in atom.columns]
        return [name for name in dict.fromkeys(names) if name not in self.spec.outcome_names]

    def _simulate(
        self,
        draw: Callable[[Any, Params, Panel, np.random.Generator], Any],
        params: Mapping[str, Any],
        size: tuple[int | None, int | None],
        data: Any,
        columns: tuple[str | None, str | None, str | None],
        seed: int | None,
    ) -> Any:
        """What `draw` gives for a user's parameters and rows.

        ``size``: subjects and times, unless there are data; ``columns``: subject, time, sequence.
        """
        if seed is not None:
            check_seed(seed)
        group, time = subject_column(self._group, columns[0]), columns[1]
        if not isinstance(data, Panel):
            group = group or "subject"
        if data is None:
            n_subjects, n_times = size
            if n_subjects is None or n_times is None:
                raise ModelError("simulate needs n_subjects and n_times, or data.")
            check_count("n_subjects", n_subjects)
            check_count("n_times", n_times)
            data, time = blank_frame(str(group), n_subjects, n_times), "time"
        panel = self._with_outcomes(read_panel(data, group, time, columns[2]))
        model = self._model_type.learn(self.spec, panel)
        checked, info = model.check_params(params, "params"), model.param_info()
        for name, own in info.items():
            if 0 in own.shape:
                checked.setdefault(name, np.zeros(own.shape))
        if lacking := set(info) - set(checked):
            raise ModelError(f"params lacks {', '.join(sorted(lacking))}.")
        drawn = draw(model, checked, panel, np.random.default_rng(seed))
        return drawn._replace(frame=panel.table_like(drawn.frame))

    def _with_outcomes(self, panel: Panel) -> Panel:
        """The panel with all outcomes, which may be looked back at before they are drawn."""
        if not panel.in_memory:
            raise need_rows()
        table = panel.table.copy()
        for name, levels in self._levels():
            if name in table:
                continue
            if levels == ():
                raise ModelError(
                    f"Which values does {name!r} take? Give the family its levels: "
                    "avem.Categorical(levels=('a', 'b', 'c'))."
                )
            table[name] = 0.0 if not levels else np.resize(np.array(levels), len(table))
        return replace(panel, table=table)
