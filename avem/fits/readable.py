"""What people read of a fit: its summary, and its estimates as tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
import pandas as pd

from avem.components.param_info import check_level
from avem.fits.elsewhere import SaysWhere
from avem.fits.estimates import Told, check_errors, estimates
from avem.fits.info import FitInfo
from avem.fits.notebook import facts, listed, model_facts
from avem.fits.paper import PaperTable, paper_table, to_html, to_latex, to_markdown
from avem.fits.tables import Summary, compose
from avem.fits.wide_table import SPREADS, wide_table
from avem.fits.words import Errors, check_word, count
from avem.inference.stop import Stop


class Readable(SaysWhere, ABC):
    """A fit as text, HTML, and tables."""

    model: Any
    subjects: np.ndarray
    bound: float
    n_iter: int
    stop: Stop
    info: FitInfo

    @abstractmethod
    def _head(self) -> list[str]:
        """The model in words: the first lines of the summary."""

    @abstractmethod
    def _starts(self) -> str:
        """How its starts went, in a sentence."""

    @abstractmethod
    def _own_kind(self, table: pd.DataFrame) -> Any:
        """A table as the user's kind of frame, with the states' names."""

    def __repr__(self) -> str:
        spec, size = self.model.spec, f"{self.model.size_name}={self.model.size}"
        parts = [repr(spec.text), size, *(f"{name}={code}" for name, code in spec.options.items())]
        parts += [count(len(self.subjects), "subject"), f"bound={self.bound:.3f}", self.stop.name]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """For notebooks: the model and how the fit ended; `summary` has the estimates."""
        info, effects = self.info, self.model.effect_labels
        known = model_facts(self.model.spec, self.model.size_name)
        known |= {"effects": ", ".join(effects)} if effects else {}
        sizes = {"subject": len(self.subjects), "sequence": info.n_sequences, "row": info.n_rows}
        known["data"] = ", ".join(count(n, what) for what, n in sizes.items())
        known[self.bound_name] = f"{self.bound:.3f} after {self.n_iter} iterations"
        known["ended"] = self.ended
        return facts(type(self).__name__, known) + listed("Notes", self.notes)

    @property
    def bound_name(self) -> str:
        """What `bound` is: a variational bound, or the log likelihood, which has one value."""
        exact = self.info.at_maximum_likelihood or not self.model.n_effects
        return "log likelihood" if exact else "bound"

    @property
    def ended(self) -> str:
        """How the iteration ended, in a sentence, and what kind of maximum that is about."""
        prior = " What it maximised is the likelihood times the priors (maximum a posteriori)."
        return str(self.stop) + (prior if self.model.spec.options.get("priors") else "")

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the states, in their order; empty where they have numbers alone."""
        return self.model.state_names

    @property
    def state_labels(self) -> tuple[str, ...]:
        """What each state is called in a sentence, a legend or a heading: its name or "state 0"."""
        return self.model.state_labels

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the fit, in sentences; `info.notes` with states named."""
        return tuple(self.model.in_words(note) for note in self.info.notes)

    def summary(
        self,
        errors: bool | Errors | None = None,
        *,
        level: float = 0.95,
        ratios: bool = False,
    ) -> Summary:
        """A table for a person to read.

        Parameters
        ----------
        errors : bool or {"observed", "sandwich"}, optional
            Whether to show standard errors and intervals, and z and p of coefficients; a word says
            which errors, as in `standard_errors`. By default they are shown where they are known
            already or quick to compute: up to 200,000 rows times effects, 50,000 with more than
            three effects, 5,000 with more than six.
        level : float
            Of the intervals.
        ratios : bool
            Also show exp of coefficients and of their intervals, where that is an odds ratio, a
            rate ratio or the like.

        Returns
        -------
        Summary
            Text: the model, the data, how the fit ended, the estimates, and notes.

        Examples
        --------
        >>> print(str(fit.summary()).splitlines()[0])
        Mixed hidden Markov model: valence ~ 1 + (1 | person)
        """
        starts = [self._starts()] if len(self.info.start_gaps) > 1 else []
        told = self._told(errors, level)
        return compose(self._head(), self._whole(), starts, told, ratios)

    def table(
        self,
        errors: bool | Errors = False,
        *,
        level: float = 0.95,
        ratios: bool = False,
        spread: Literal["covariance", "sd"] = "covariance",
    ) -> Any:
        """Every parameter as a row: what it is, and the estimate.

        Parameters
        ----------
        errors : bool or {"observed", "sandwich"}
            Add ``se``, ``z``, ``p``, ``lower``, ``upper`` and ``note``, as `standard_errors` has
            them. ``z`` is a coefficient over its standard error; ``p`` is two-sided, and goes with
            the interval: by Student's t with one degree of freedom less than subjects, or, without
            effects, by the normal distribution. Variances and probabilities have no z: 0 is the
            end of their range.
        level : float
            Of the intervals.
        ratios : bool
            Add ``ratio``, exp of a coefficient, with its interval, and ``ratio_kind``: odds ratio,
            rate ratio, ... Intercepts have none.
        spread : {"covariance", "sd"}
            How subjects differ: as variances and covariances of the effects, or as standard
            deviations and correlations, with intervals made on the scales of the logarithm and of
            Fisher's z.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``parameter``, ``state``, ``to_state`` (of a transition, where
            it comes from and where it goes), ``outcome``, ``term``, ``other`` (the second one of a
            covariance), ``estimate``. Columns that do not apply are empty.

        Examples
        --------
        >>> list(fit.table()["parameter"].unique())
        ['initial', 'transition', 'coef', 'variance', 'effect_covariance']
        >>> fit.table(spread="sd")["parameter"].iloc[-1]
        'effect_sd'
        """
        check_word("spread", spread, SPREADS)
        check_level(level)
        chosen = check_errors(errors) or False
        return self._own_kind(wide_table(self._whole(), chosen, level, ratios, spread))

    def to_latex(
        self,
        errors: bool | Errors | None = None,
        *,
        level: float = 0.95,
        ratios: bool = False,
        digits: int = 2,
        caption: str | None = None,
    ) -> str:
        r"""The estimates as a LaTeX table for a paper.

        Parameters
        ----------
        errors : bool or {"observed", "sandwich"}, optional
            As in `summary`.
        level : float
            Of the intervals.
        ratios : bool
            As in `summary`.
        digits : int
            Decimals; a row whose numbers would all be zeros has more.
        caption : str, optional
            By default the model in a line.

        Returns
        -------
        str
            A ``table`` with the rules of the LaTeX package booktabs.

        Examples
        --------
        >>> print(fit.to_latex(caption="Mood").splitlines()[1])
        \caption{Mood}
        """
        return to_latex(self._paper(errors, level, ratios, digits, caption))

    def to_html(
        self,
        errors: bool | Errors | None = None,
        *,
        level: float = 0.95,
        ratios: bool = False,
        digits: int = 2,
        caption: str | None = None,
    ) -> str:
        """The estimates as an HTML table, to paste into a document or a page.

        Parameters
        ----------
        errors : bool or {"observed", "sandwich"}, optional
            As in `summary`.
        level : float
            Of the intervals.
        ratios : bool
            As in `summary`.
        digits : int
            As in `to_latex`.
        caption : str, optional
            As in `to_latex`.

        Returns
        -------
        str

        Examples
        --------
        >>> print(fit.to_html(caption="Mood").splitlines()[1])
        <caption>Mood</caption>
        """
        return to_html(self._paper(errors, level, ratios, digits, caption))

    def to_markdown(
        self,
        errors: bool | Errors | None = None,
        *,
        level: float = 0.95,
        ratios: bool = False,
        digits: int = 2,
        caption: str | None = None,
    ) -> str:
        """The estimates as a Markdown table.

        Parameters
        ----------
        errors : bool or {"observed", "sandwich"}, optional
            As in `summary`.
        level : float
            Of the intervals.
        ratios : bool
            As in `summary`.
        digits : int
            As in `to_latex`.
        caption : str, optional
            As in `to_latex`.

        Returns
        -------
        str

        Examples
        --------
        >>> print(fit.to_markdown(caption="Mood").splitlines()[0])
        Mood
        """
        return to_markdown(self._paper(errors, level, ratios, digits, caption))

    def _told(self, errors: Any, level: float) -> Told:
        return estimates(self._whole(), check_errors(errors), level)

    def _whole(self) -> Any:
        """The fit that this is the readable part of."""
        return self

    def _paper(
        self, errors: Any, level: float, ratios: bool, digits: int, caption: str | None
    ) -> PaperTable:
        told = self._told(errors, level)
        title = self._head()[0] if caption is None else str(caption)
        return paper_table(told, title, digits, ratios)

    def _ratios(self) -> dict[str, str]:
        """By parameter that holds coefficients, what exp of one of them is."""
        return {}
