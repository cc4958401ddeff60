"""What the report of a fit says of its kind of model alone; the rest of the page is one for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from avem.data import Panel
from avem.fits.fit import Fit
from avem.fits.report.frame import PageSection


class OutcomeFacts(NamedTuple):
    """One outcome as the table of the data shows it."""

    name: str
    family: str
    values: np.ndarray
    """(rows,) NaN where missing."""
    levels: tuple | None


@dataclass(frozen=True)
class Parts(ABC):
    """The parts that differ between kinds of models."""

    fit: Fit

    title: ClassVar[str]
    """Of the page, for a model with effects."""
    plain_title: ClassVar[str]
    """For one without."""
    draws_are_cheap: ClassVar[bool]
    """Whether residuals at drawn effects cost no more than those at fitted ones."""

    @abstractmethod
    def model_words(self, subject: str) -> list[str]:
        """Paragraphs of HTML about the model; `subject` is the column of the subjects."""

    @abstractmethod
    def findings(self, level: float | None) -> str:
        """What was found, with intervals of a level or without: cards and tables."""

    @abstractmethod
    def effect_words(self) -> list[str]:
        """What each effect is, for people."""

    @abstractmethod
    def reading(self) -> str:
        """What states, effects and the bound are, for those who meet them first."""

    @abstractmethod
    def code(self) -> str:
        """Python that makes the model."""

    def caveats(self) -> list[str]:
        """What the code of the model cannot say."""
        return []

    def facts(self) -> list[tuple[str, str]]:
        """(value, name) of further numbers at a glance."""
        return []

    @abstractmethod
    def outcomes(self, y: np.ndarray) -> list[OutcomeFacts]:
        """Each outcome, from the columns (rows, columns) that the model reads."""

    @abstractmethod
    def starts(self) -> str:
        """What became of several starts."""

    @abstractmethod
    def estimates(self) -> Iterator[PageSection]:
        """Sections about the estimates."""

    def row_states(self) -> np.ndarray | None:
        """(rows,) the decoded state, where states are of a kind that rows decode to."""
        return None

    def correlations(self) -> str:
        """Of the effects, where no other section has them."""
        return ""

    def certainty(self) -> str:
        """How well the states can be told apart, as HTML; nothing where that is no question."""
        return ""

    @abstractmethod
    def static_states(self) -> str:
        """Some subjects over time, as a picture."""

    @abstractmethod
    def columns(self, panel: Panel) -> dict[str, Any]:
        """What timelines draw of every row: states, and outcomes with their expected values."""
