"""How large a model in a file may be: known before it is built, and the same for saving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from avem.data import Design
from avem.data.designs import Designs
from avem.errors import FileError
from avem.families.base import Family
from avem.models.hmm_specification import Specification
from avem.models.ssm_specification import SSMSpecification

_MAX_FORMULAS = 1000
_MAX_TEXT = 200_000  # characters of all formulas
_MAX_COLUMNS = 50_000  # of the designs of all formulas
_MAX_NAMES = 20_000_000  # characters of their names
_MAX_MATRIX = 1 << 22  # entries of a matrix of transitions; coefficients of all outcomes in a state
_MAX_DENSE = 1 << 20  # the same of a state-space model
_MAX_MOVES = 1 << 18  # coefficients of transitions with a formula
_MAX_EFFECTS = 2000


def check_formulas(texts: Sequence[str]) -> None:
    """Raise if there are more formulas than can be read in a moment."""
    _check("formulas", len(texts), _MAX_FORMULAS)
    _check("characters in its formulas", sum(map(len, texts)), _MAX_TEXT)


def check_designs(parts: Iterable[Design]) -> None:
    """Raise as soon as the designs, made one by one, have more columns than fit."""
    n_columns = n_characters = 0
    for part in parts:
        n_columns += len(part.columns)
        n_characters += sum(map(len, part.columns))
        _check("columns of its formulas", n_columns, _MAX_COLUMNS)
        _check("characters in the names of its columns", n_characters, _MAX_NAMES)


def check_states(n_states: int) -> None:
    """Raise if not even a matrix of transitions fits."""
    _check("transitions between states", n_states**2, _MAX_MATRIX)


def check_clusters(n_clusters: int, n_states: int) -> None:
    """Raise unless there can be so many types of subjects."""
    if n_clusters < 1:
        raise FileError(f"its model has {n_clusters} types of subjects.")
    _check("transitions of all types of subjects", n_clusters * n_states**2, _MAX_MATRIX)


def check_hmm(spec: Specification, families: Sequence[Sequence[Family]], designs: Designs) -> None:
    """Raise if the model of these parts is too large."""
    check_states(k := spec.n_states)
    check_clusters(spec.n_clusters, k)
    check_designs(designs.parts)
    n_coefs = n_effects = part = 0
    for item, of_item in zip(spec.outcomes, families, strict=True):
        n_locations = sum(max(1, len(family.levels or ()) - 1) for family in of_item)
        n_coefs += k * sum(len(family.with_formula) for family in of_item)
        for i, design in enumerate(designs.parts[part : part + len(item.formulas)]):
            n_lines = len(of_item) if i else n_locations
            n_coefs += n_lines * len(design.x_cols) * k
            n_effects += n_lines * len(design.z_cols) * (k if item.effects_by_state else 1)
        part += len(item.formulas)
    moves = designs.parts[part]
    _check("coefficients of its outcomes", n_coefs, _MAX_MATRIX)
    if spec.initial is None or not spec.transition.formula.is_constant:
        n_columns = len(moves.x_cols) + len(moves.z_cols)
        _check("coefficients of its transitions", n_columns * spec.n_clusters * k**2, _MAX_MOVES)
    n_effects += len(moves.z_cols) * k * (k - 1)
    if spec.initial is not None:
        n_effects += len(designs.parts[part + 1].z_cols) * (k - 1)
    if spec.duration is not None:
        stays = designs.parts[-2]
        _check("coefficients of its durations", k * (len(stays.x_cols) + 1), _MAX_MATRIX)
        n_effects += len(stays.z_cols) * (k if spec.duration.effects_by_state else 1)
    _check("effects", n_effects, _MAX_EFFECTS)


def check_ssm(spec: SSMSpecification, designs: Designs) -> None:
    """Raise if the model of these parts is too large."""
    check_designs(designs.parts)
    q, p, own = spec.n_latent, len(spec.formula.outcomes), designs.parts[0]
    _check("transitions between states", q**2, _MAX_DENSE)
    _check("coefficients of its outcomes", p * (q + len(own.x_cols)), _MAX_DENSE)
    of_states = (q**2 if "transition" in spec.random else 0) + (
        p * q if "loading" in spec.random else 0
    )
    _check("effects", of_states + p * len(own.z_cols), _MAX_EFFECTS)


def _check(what: str, n: int, most: int) -> None:
    if n > most:
        raise FileError(f"its model has {n:,} {what}, more than avem saves: at most {most:,}.")
