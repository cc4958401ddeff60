"""A fit in one file, without the data: ``fit.save("mood.avem")`` and ``avem.load("mood.avem")``.

The file is a zip with ``fit.json`` and one ``.npy`` member per array. It may come from a stranger,
so nothing in it is executed, and nothing is built before its size is known; see `archive`,
`checked_json`, `sizes` and `possible`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload
from urllib.parse import quote

import numpy as np
import pandas as pd

from avem.data.writing import replacing
from avem.errors import AvemError, FileError, ModelError
from avem.families import Custom
from avem.fits.fit import Fit
from avem.fits.hmm_fit import HMMFit
from avem.fits.info import FitInfo
from avem.fits.io.archive import Archive, npy, write_archive
from avem.fits.io.checked_json import typed
from avem.fits.io.given import Given
from avem.fits.io.hmm_json import model_in, model_out
from avem.fits.io.labels import label_in, label_out
from avem.fits.io.possible import check_averages, check_effects, check_info, check_params
from avem.fits.io.ssm_json import ssm_model_in, ssm_model_out
from avem.fits.ssm_fit import SSMFit
from avem.inference.stop import Stop

FORMAT, VERSION = "avem fit", 3
_JSON, _LABELS = "fit.json", "subjects.npy"
_WHAT = {
    _JSON: ("saved fit", "avem.load"),
    "monitor.json": ("monitor", "avem.Monitor.load"),
}
_MAX_WORDS = 2000  # characters of a message
_LABEL_DTYPES = "biufMmU"  # labels of other dtypes are Python objects and go into the JSON


@dataclass(frozen=True)
class _Record:
    """What ``fit.json`` holds beside the format, its version and the version of avem."""

    model: dict
    columns: dict
    n_subjects: int
    subjects: list | None
    """(kind, value) of each label; None when they are an array member."""
    info: dict
    stop: str
    n_iter: int
    bound: float
    kind: str = "hmm"
    """Of the model; files of before there were several say nothing."""


class _Kind(NamedTuple):
    """How one kind of fit is written and read."""

    fit: type
    words: str
    """Of what."""
    model_out: Callable[[Any], dict]
    model_in: Callable[[dict, Given], Any]
    check: Callable[[Any], None]
    """Raises where the fit as a whole cannot be."""


_KINDS = {
    HMMFit.kind: _Kind(HMMFit, "a hidden Markov model", model_out, model_in, check_averages),
    SSMFit.kind: _Kind(
        SSMFit,
        "a state-space model",
        ssm_model_out,
        lambda found, given: ssm_model_in(found),
        lambda fit: None,
    ),
}
_BY_FIT = {kind.fit: kind for kind in _KINDS.values()}
OneKind = TypeVar("OneKind", HMMFit, SSMFit)


@dataclass(frozen=True)
class ColumnNames:
    """The data's columns, as a file names them."""

    subject: str
    time: str | None
    sequence: str | None


# --- saving ------------------------------------------------------------------------------------


def save(fit: Fit, path: str | os.PathLike[str]) -> None:
    """Write the fit to `path`, by convention ``something.avem``; `load` reads it.

    An existing file is replaced only once the new one is complete.
    """
    members = {_JSON: _json(fit)} | {name: npy(values) for name, values in _arrays(fit).items()}
    with replacing(path, " to save the fit in") as file:
        write_archive(file, members)


def _json(fit: Fit) -> bytes:
    record = _Record(
        model=_KINDS[fit.kind].model_out(fit.model),
        columns=dict(fit.columns),
        n_subjects=len(fit.subjects),
        subjects=None if _is_array(fit.subjects) else [label_out(x) for x in fit.subjects],
        info=asdict(fit.info),
        stop=fit.stop.name,
        n_iter=fit.n_iter,
        bound=fit.bound,
        kind=fit.kind,
    )
    own = getattr(sys.modules["avem"], "__version__", "unknown")
    head = {"format": FORMAT, "version": VERSION, "avem": own}
    return json.dumps(head | asdict(record), indent=1).encode("ascii")


def _arrays(fit: Fit) -> dict[str, np.ndarray]:
    found = {
        **{param_member(name): value for name, value in fit.params.items()},
        "effects_mean.npy": fit.effects_mean,
        "effects_cov.npy": fit.effects_cov,
        "bound_history.npy": fit.bound_history,
        "loglik_history.npy": fit.loglik_history,
    }
    arrays = {name: np.asarray(value, dtype="<f8") for name, value in found.items()}
    return arrays | ({_LABELS: fit.subjects} if _is_array(fit.subjects) else {})


def param_member(name: str) -> str:
    """The member of a parameter; names of outcomes are the user's, and may be anything."""
    return f"params/{quote(name, safe='')}.npy"


# --- loading -----------------------------------------------------------------------------------


@overload
def load(
    path: str | os.PathLike[str],
    custom: Custom | Mapping[str, Custom] | None = None,
    *,
    expect: type[OneKind],
) -> OneKind: ...


@overload
def load(
    path: str | os.PathLike[str],
    custom: Custom | Mapping[str, Custom] | None = None,
    *,
    expect: None = None,
) -> HMMFit | SSMFit: ...


def load(
    path: str | os.PathLike[str],
    custom: Custom | Mapping[str, Custom] | None = None,
    *,
    expect: Any = None,
) -> Any:
    """The fit that `fit.save` wrote.

    Parameters
    ----------
    path : str or path
        The file.
    custom : Custom or dict of str to Custom, optional
        Needed for a fit with an emission of your own, `Custom`, whose functions no file holds: the
        family that was fitted, or one for each outcome that has one, by its name. A family with
        other names or other log probabilities is refused.
    expect : type, optional
        ``avem.HMMFit`` or ``avem.SSMFit``: a file that holds a fit of the other kind is refused,
        and editors and type checkers know what they have.

    Returns
    -------
    HMMFit or SSMFit
        It holds no data: pass them to its methods, or see `fit.with_data`.

    Examples
    --------
    >>> fit.save(folder / "mood.avem")
    >>> avem.load(folder / "mood.avem").subjects[0]
    'p01'
    >>> mood = avem.load(folder / "mood.avem", expect=avem.HMMFit)
    """
    given = Given(custom)
    if expect is not None and expect not in _BY_FIT:
        raise ModelError(f"expect is {expect!r}; avem.HMMFit or avem.SSMFit is wanted.")
    return reading(Path(path), lambda archive: _fit(archive, given, expect))


def reading(path: Path, make: Callable[[Archive], Any]) -> Any:
    """What is made of an archive, or an error that says what is wrong with the file."""
    try:
        with open(path, "rb") as file:
            _check_kind(file.read(4))
            return make(Archive(file, os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        raise FileError(f"There is no file {str(path)!r}.") from None
    except OSError as error:
        raise FileError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
    except AvemError as error:
        raise FileError(f"Cannot load {str(path)!r}: {_brief(error)}") from error
    except Exception as error:  # zipfile, zlib, json and NumPy have dozens of ways to say "damaged"
        reason = f"{type(error).__name__}: {_brief(error)}"
        raise FileError(f"{str(path)!r} is damaged or was cut short ({reason}).") from error


def _brief(error: Exception) -> str:
    """What it says; where it quotes something endless from the file, both ends of it."""
    said, half = str(error), _MAX_WORDS // 2
    return said if len(said) <= _MAX_WORDS else f"{said[:half]} ... {said[-half:]}"


def _check_kind(start: bytes) -> None:
    if not start:
        raise FileError("it is empty; a file written by fit.save() is wanted.")
    if start != b"PK\3\4":
        raise FileError(
            f"it is not a saved fit (it begins with {start!r}); a file written by fit.save() is "
            "wanted."
        )


def _fit(archive: Archive, given: Given, expect: type | None) -> HMMFit | SSMFit:
    record = _record(archive)
    if record.n_subjects < 1 or record.n_iter < 0:
        raise FileError("it has no subjects or a negative number of iterations.")
    if record.kind not in _KINDS:
        raise FileError(f"it is a fit of the kind {record.kind!r}; update avem.")
    kind = _KINDS[record.kind]
    if expect not in (None, kind.fit):
        raise FileError(
            f"it holds the fit of {kind.words}, and expect= asks for that of "
            f"{_BY_FIT[expect].words}. Write expect=avem.{kind.fit.__name__}, or leave it out."
        )
    model = kind.model_in(record.model, given)
    given.check_used()
    columns = asdict(typed(ColumnNames, record.columns, "columns"))
    for group in {group for formula in model.spec.formulas for _, group in formula.groups}:
        if group != columns["subject"]:
            raise FileError(f"its formula groups by {group!r}, its data by {columns['subject']!r}.")
    info = typed(FitInfo, record.info, "info")
    check_info(info, record.n_subjects)
    n, d = record.n_subjects, model.n_effects
    kinds = model.param_info()
    params = {name: archive.numbers(param_member(name), of.shape) for name, of in kinds.items()}
    check_params(params, model)
    effects_mean = archive.numbers("effects_mean.npy", (n, d))
    effects_cov = archive.numbers("effects_cov.npy", (n, d, d))
    check_effects(effects_mean, effects_cov)
    history = (record.n_iter,)
    fit = kind.fit(
        model=model,
        params=params,
        effects_mean=effects_mean,
        effects_cov=effects_cov,
        subjects=_subjects(archive, record),
        bound=float(record.bound),
        bound_history=archive.numbers("bound_history.npy", history, finite=False),
        loglik_history=archive.numbers("loglik_history.npy", history, finite=False),
        n_iter=record.n_iter,
        stop=_stop(record.stop),
        info=info,
        columns=columns,
    )
    kind.check(fit)
    return fit


def refuse_other(archive: Archive, wanted: str) -> None:
    """Raise unless there is this member, by which kinds of files are known."""
    if wanted in archive.names:
        return
    for name, (what, reads) in _WHAT.items():
        if name in archive.names:
            raise FileError(f"it is a {what}; {reads} reads it.")
    some = ", ".join(archive.names[:3])[:200] or "nothing"
    what, _ = _WHAT[wanted]
    raise FileError(f"it is a zip archive (of {some}) without {wanted}, so not a {what}.")


def _record(archive: Archive) -> _Record:
    refuse_other(archive, _JSON)
    found = archive.json(_JSON)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"its {_JSON} does not say that it is of the format {FORMAT!r}.")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise FileError(f"its format version is {version!r}; a whole number is wanted.")
    if version > VERSION:
        raise FileError(
            f"it has format version {version}, written by avem {found.get('avem')}; this avem "
            f"reads version {VERSION}. Update avem."
        )
    if version < VERSION:
        raise FileError(
            f"it has format version {version}, written by avem {found.get('avem')}; this avem "
            f"reads version {VERSION}. Fit the model again, or load it with that avem."
        )
    return typed(_Record, found, _JSON)


def _stop(name: str) -> Stop:
    if name not in Stop.__members__:
        raise FileError(f"its stop is {name!r}; one of {', '.join(Stop.__members__)} is wanted.")
    return Stop[name]


def _is_array(labels: np.ndarray) -> bool:
    return labels.dtype.kind in _LABEL_DTYPES


def _subjects(archive: Archive, record: _Record) -> np.ndarray:
    n = record.n_subjects
    if record.subjects is None:
        labels = archive.array(_LABELS, (n,), _LABEL_DTYPES)
        archive.reserve(n * (120 if labels.dtype.kind == "U" else 40), "labels")  # to compare them
    elif len(record.subjects) == n:
        labels = np.empty(n, dtype=object)
        labels[:] = [label_in(*label) for label in record.subjects]
    else:
        raise FileError(f"it has {len(record.subjects)} labels for {n} subjects.")
    if pd.isna(labels).any():
        raise FileError("one of its subjects has no label.")
    if not pd.Index(labels).is_unique:
        raise FileError("two of its subjects have the same label.")
    labels.flags.writeable = False
    return labels
