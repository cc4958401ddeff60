"""What is known of the state of every row of a fit with discrete states."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import pandas as pd

from avem.errors import ModelError
from avem.fits.filtering import filtered_states
from avem.fits.fit import Fit
from avem.fits.lazy import by_parts
from avem.fits.monitor import Monitor
from avem.fits.monitor_start import make_monitor
from avem.fits.questions.uncertain_states import STATE_DRAWS, drawn_states, integrated_states
from avem.fits.words import (
    PARAMETERS,
    Parameters,
    check_word,
)
from avem.inference.after.hmm_states import (
    Occupation,
    occupation,
    state_probabilities,
    viterbi,
)
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.models.hmm_simulate import Simulation
from avem.models.state_names import name_states


class StatesOfRows(Fit[HMMModel, Simulation]):
    """A fit whose rows are each in one of several states: paths, and probabilities of states."""

    @overload
    def decode(self, data: pd.DataFrame) -> pd.Series: ...

    @overload
    def decode(self, data: Any = None) -> Any: ...

    @by_parts
    def decode(self, data: Any = None) -> Any:
        """The most probable path of states through each sequence (Viterbi).

        The states of a path fit together; the most probable state of a single row, whatever the
        others are, is `most_probable_states`.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the rows of the fit. Of new data, subjects of the fit keep their fitted
            effects, others get theirs from these rows.

        Returns
        -------
        Series
            The state of each row, from 0 (its name where the states have names), in the data's own
            row order and index.

        Examples
        --------
        >>> fit.decode().value_counts().sum() == fit.info.n_rows
        np.True_
        """
        encoded = self._encode(data)
        return encoded.panel.like(self._named_states(self._path(encoded)), "state")

    @overload
    def most_probable_states(self, data: pd.DataFrame) -> pd.Series: ...

    @overload
    def most_probable_states(self, data: Any = None) -> Any: ...

    @by_parts
    def most_probable_states(self, data: Any = None) -> Any:
        """The most probable state of each row: that with the largest state probability.

        Most rows are right this way; as a path, which `decode` finds, the states may not fit
        together.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            As for `decode`.

        Returns
        -------
        Series
            As `decode` gives it.

        Examples
        --------
        >>> probabilities = fit.state_probabilities().to_numpy()
        >>> bool((fit.most_probable_states() == probabilities.argmax(axis=1)).all())
        True
        """
        encoded = self._encode(data)
        states = self._state_probabilities(encoded).argmax(axis=1)
        return encoded.panel.like(self._named_states(states), "state")

    @overload
    def state_probabilities(
        self,
        data: pd.DataFrame,
        effects: Literal["fitted", "integrated"] = "fitted",
        parameters: Parameters = "fixed",
    ) -> pd.DataFrame: ...

    @overload
    def state_probabilities(
        self,
        data: Any = None,
        effects: Literal["fitted", "integrated"] = "fitted",
        parameters: Parameters = "fixed",
    ) -> Any: ...

    @by_parts
    def state_probabilities(
        self,
        data: Any = None,
        effects: Literal["fitted", "integrated"] = "fitted",
        parameters: Parameters = "fixed",
    ) -> Any:
        """The probability of each state at each row, given all data of the sequence.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            As for `decode`.
        effects : {"fitted", "integrated"}
            ``"fitted"``: as if each subject's effects were their posterior means.
            ``"integrated"``: averaged over their posterior; only of the data of the fit.
        parameters : {"fixed", "estimated"}
            ``"estimated"``: averaged over 300 draws of parameters and effects together, each
            counting as much as its likelihood says; only of the data of the fit.

        Returns
        -------
        DataFrame
            ``state_0``, ``state_1``, ... (or the names of the states), in the data's own row order
            and index.

        Examples
        --------
        >>> list(fit.state_probabilities().columns)
        ['state_0', 'state_1']
        """
        check_word("effects", effects, ("fitted", "integrated"))
        check_word("parameters", parameters, PARAMETERS)
        encoded = self._encode(data)
        if (effects, parameters) == ("fitted", "fixed"):
            values = self._state_probabilities(encoded)
        elif data is not None:
            raise ModelError(
                "effects='integrated' and parameters='estimated' are for the data of the fit: "
                "leave data= out."
            )
        elif parameters == "fixed":
            values = integrated_states(self)
        else:
            values = drawn_states(self, STATE_DRAWS, self.info.seed)
        return encoded.panel.frame_like(dict(zip(self._state_columns(), values.T, strict=True)))

    @by_parts
    def filter(
        self,
        data: Any = None,
        effects: Literal["new", "integrated"] = "new",
        *,
        n_nodes: int | None = None,
    ) -> Any:
        """The probability of each state at each row, given that row and those before it.

        What could be known at the time: later rows of the sequence do not count, as they do in
        `state_probabilities`. What earlier sequences of the subject say of its effects counts;
        they follow each other as they first appear in the data.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the rows of the fit.
        effects : {"new", "integrated"}
            What is known of a subject's effects before its first row. ``"new"``: that it is one of
            the population. ``"integrated"``: of the fit's subjects, what the rows of the fit say;
            for rows that came later.
        n_nodes : int, optional
            Over how many values of the effects is averaged, about.

        Returns
        -------
        DataFrame
            ``state_0``, ``state_1``, ... (or the names of the states), in the data's own row order
            and index.

        Examples
        --------
        >>> list(fit.filter().columns)
        ['state_0', 'state_1']
        """
        encoded = self._encode(data)
        values = filtered_states(self, encoded, encoded.panel is self.panel, effects, n_nodes)
        return encoded.panel.frame_like(dict(zip(self._state_columns(), values.T, strict=True)))

    def monitor(
        self,
        rows: Any = None,
        subject: Any = None,
        effects: Literal["new", "integrated"] = "new",
        *,
        n_nodes: int | None = None,
    ) -> Monitor:
        """A `Monitor` of one subject: what is known of it, updated row by row as rows come.

        Parameters
        ----------
        rows : DataFrame or Panel, optional
            The rows of the subject so far; by default none.
        subject : optional
            Its label, where there are no rows to say it.
        effects : {"new", "integrated"}
            What is known of its effects before its first row, as in `filter`.
        n_nodes : int, optional
            How many values of the effects are kept, about; the time of an update grows with it.

        Returns
        -------
        Monitor

        Examples
        --------
        >>> diary = avem.load_affect()
        >>> monitor = fit.monitor(diary[diary["person"] == "p01"].head(10))
        >>> sorted(monitor.states)
        ['state_0', 'state_1']
        """
        return make_monitor(self, rows, subject, effects, n_nodes)

    # --- inside ----------------------------------------------------------------------------------

    def _path(self, encoded: Encoded) -> np.ndarray:
        """(rows,) the most probable path, as numbers."""
        return viterbi(encoded, self.theta, self._effects_for(encoded))

    def _decoded(self) -> np.ndarray:
        """(rows,) that of the fit's own data."""
        return self._path(self._own_data)

    def _named_states(self, states: np.ndarray) -> np.ndarray:
        return name_states(states, self.state_names)

    def _state_probabilities(self, encoded: Encoded) -> np.ndarray:
        return state_probabilities(encoded, self.theta, self._effects_for(encoded))

    @property
    def _occupation(self) -> Occupation:
        return occupation(self._own_data, self.theta, self._effects_in())
