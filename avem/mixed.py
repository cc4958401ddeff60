"""What `MixedHMM` and `MixedSSM` tell those who make many fits of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from avem.data import Panel


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

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: Any, learned: Any = None) -> Self:
        """The model with this specification."""

    @abstractmethod
    def with_size(self, size: int) -> Self:
        """The same model with another number of states."""

    @abstractmethod
    def usual_sizes(self) -> range:
        """The numbers of states that `select` tries unless told otherwise."""

    @abstractmethod
    def fit(self, data: Any, *args: Any, **options: Any) -> Any:
        """The model fitted to data."""

    @abstractmethod
    def has_effects(self) -> bool:
        """Whether subjects differ."""

    @abstractmethod
    def _panel(
        self, data: Any, subject: str | None, time: str | None, sequence: str | None
    ) -> Panel:
        """A user's data as a panel."""
