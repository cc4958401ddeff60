"""A fit in one file, without the data: ``fit.save("mood.avem")`` and ``avem.load("mood.avem")``.

The file is a zip with ``fit.json`` and one ``.npy`` member per array. It may come from a stranger,
so nothing in it is executed: there is no pickle, formulas are read by `avem.data`, which knows only
its own few functions, and the size of every array is known before it is read.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import os
import sys
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from avem.data import Design
from avem.effects.prior import STRUCTURES
from avem.errors import AvemError, FileError
from avem.families import Gaussian
from avem.inference.stop import Stop
from avem.models.hmm_model import HMMModel
from avem.models.params import param_shapes
from avem.models.scaling import Scaling
from avem.results.hmm_fit import FitInfo, HMMFit

FORMAT, VERSION = "avem fit", 1
_JSON, _LABELS = "fit.json", "subjects.npy"
_MAX_JSON = 1 << 28
_MAX_ARRAY = 1 << 32
_MAX_HEADER = 4096  # of an .npy member; those written here are 128 bytes
_LABEL_DTYPES = "biufMmU"  # labels of other dtypes are Python objects and go into the JSON

T = TypeVar("T")


@dataclass(frozen=True)
class _Record:
    """What ``fit.json`` holds beside the format, its version and the version of avem."""

    design: dict
    """`Design.state`: the formula, and what was learned from the data for it."""
    n_states: int
    family: str
    covariance: str
    effect_covariance: str
    scaling: dict
    columns: dict
    n_subjects: int
    subjects: list | None
    """(kind, value) of each label; None when they are an array member."""
    info: dict
    stop: str
    n_iter: int
    bound: float


@dataclass(frozen=True)
class _Units:
    """The JSON of a `Scaling`."""

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    column_centre: tuple[float, ...]
    column_scale: tuple[float, ...]
    constant: int


@dataclass(frozen=True)
class _Columns:
    subject: str
    time: str | None
    sequence: str | None


# --- saving ------------------------------------------------------------------------------------


def save(fit: HMMFit, path: str | os.PathLike[str]) -> None:
    """Write the fit to `path`, by convention ``something.avem``; `load` reads it.

    An existing file is replaced only once the new one is complete.
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{str(path)!r} is a folder; the name of a file is wanted.")
    if not path.parent.is_dir():
        raise FileError(
            f"There is no folder {str(path.parent)!r} to save the fit in. Make it first."
        )
    members = {_JSON: _json(fit)} | {name: _npy(array) for name, array in _arrays(fit).items()}
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write(file, members)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: Any, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            if len(data) > _limit(name):
                raise FileError(f"The fit is too large to save: {name} has {len(data):,} bytes.")
            # A fixed date: the same fit gives the same bytes.
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)


def _limit(name: str) -> int:
    return _MAX_JSON if name in (_JSON, _LABELS) else _MAX_ARRAY


def _json(fit: HMMFit) -> bytes:
    model = fit.model
    record = _Record(
        design=model.design.state,
        n_states=model.n_states,
        family="gaussian",
        covariance=model.family.covariance,
        effect_covariance=model.effect_covariance,
        scaling=model.scaling.to_json(),
        columns=dict(fit.columns),
        n_subjects=len(fit.subjects),
        subjects=None if _is_array(fit.subjects) else [_label_out(x) for x in fit.subjects],
        info=asdict(fit.info),
        stop=fit.stop.name,
        n_iter=fit.n_iter,
        bound=fit.bound,
    )
    own = getattr(sys.modules["avem"], "__version__", "unknown")
    head = {"format": FORMAT, "version": VERSION, "avem": own}
    return json.dumps(head | asdict(record), indent=1).encode("ascii")


def _arrays(fit: HMMFit) -> dict[str, np.ndarray]:
    found = {
        **{_param(name): value for name, value in fit.params.items()},
        "effects_mean.npy": fit.effects_mean,
        "effects_cov.npy": fit.effects_cov,
        "bound_history.npy": fit.bound_history,
        "loglik_history.npy": fit.loglik_history,
    }
    arrays = {name: np.asarray(value, dtype="<f8") for name, value in found.items()}
    return arrays | ({_LABELS: fit.subjects} if _is_array(fit.subjects) else {})


def _param(name: str) -> str:
    return f"params/{name}.npy"


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


# --- loading -----------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> HMMFit:
    """The fit that `HMMFit.save` wrote. It holds no data: pass them to `decode` and its like."""
    path = Path(path)
    try:
        _check_kind(path)
        with zipfile.ZipFile(path) as archive:
            return _fit(archive)
    except FileNotFoundError:
        raise FileError(f"There is no file {str(path)!r}.") from None
    except OSError as error:
        raise FileError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
    except AvemError as error:
        raise FileError(f"Cannot load {str(path)!r}: {error}") from error
    except Exception as error:  # zipfile, zlib, json and NumPy have dozens of ways to say "damaged"
        reason = f"{type(error).__name__}: {error}"
        raise FileError(f"{str(path)!r} is damaged or was cut short ({reason}).") from error


def _check_kind(path: Path) -> None:
    with open(path, "rb") as file:
        start = file.read(4)
    if not start:
        raise FileError("it is empty; a file written by fit.save() is wanted.")
    if start != b"PK\3\4":
        raise FileError(
            f"it is not a saved fit (it begins with {start!r}); a file written by fit.save() is "
            "wanted."
        )


def _fit(archive: zipfile.ZipFile) -> HMMFit:
    record = _record(archive)
    model = _model(record)
    columns = asdict(_typed(_Columns, record.columns, "columns"))
    for _, group in model.design.formula.groups:
        if group != columns["subject"]:
            raise FileError(f"its formula groups by {group!r}, its data by {columns['subject']!r}.")
    shapes = param_shapes(model.design, model.n_states, model.family)
    n, d = record.n_subjects, model.n_effects
    return HMMFit(
        model=model,
        params={name: _numbers(archive, _param(name), shape) for name, shape in shapes.items()},
        effects_mean=_numbers(archive, "effects_mean.npy", (n, d)),
        effects_cov=_numbers(archive, "effects_cov.npy", (n, d, d)),
        subjects=_subjects(archive, record),
        bound=float(record.bound),
        bound_history=_numbers(archive, "bound_history.npy", (record.n_iter,), finite=False),
        loglik_history=_numbers(archive, "loglik_history.npy", (record.n_iter,), finite=False),
        n_iter=record.n_iter,
        stop=_stop(record.stop),
        info=_typed(FitInfo, record.info, "info"),
        columns=columns,
    )


def _record(archive: zipfile.ZipFile) -> _Record:
    if _JSON not in archive.namelist():
        some = ", ".join(archive.namelist()[:3]) or "nothing"
        raise FileError(f"it is a zip archive (of {some}) without {_JSON}, so not a saved fit.")
    found = json.loads(_member(archive, _JSON, _MAX_JSON))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"its {_JSON} does not say that it is of the format {FORMAT!r}.")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise FileError(f"its format version is {version!r}; a whole number is wanted.")
    if version > VERSION:
        raise FileError(
            f"it has format version {version}, written by avem {found.get('avem')}; this avem "
            f"reads versions up to {VERSION}. Update avem."
        )
    return _typed(_Record, found, _JSON)


def _model(record: _Record) -> HMMModel:
    if record.family != "gaussian":
        raise FileError(f"its family is {record.family!r}; this avem knows gaussian.")
    if record.effect_covariance not in STRUCTURES:
        raise FileError(f"its effect_covariance is {record.effect_covariance!r}.")
    if min(record.n_states, record.n_subjects) < 1 or record.n_iter < 0:
        raise FileError("it has no states or no subjects.")
    family = Gaussian(record.covariance)
    design = Design.from_state(record.design)
    units = _typed(_Units, record.scaling, "scaling")
    _check_units(units, design)
    scaling = Scaling.from_json(asdict(units), design, family)
    return HMMModel(record.n_states, family, record.effect_covariance, design, scaling)


def _check_units(units: _Units, design: Design) -> None:
    p, a = len(design.outcomes), len(design.columns)
    lengths = tuple(
        len(values)
        for values in (units.centre, units.scale, units.column_centre, units.column_scale)
    )
    places = np.array([*units.centre, *units.column_centre])
    sizes = np.array([*units.scale, *units.column_scale])
    if (
        p < 1
        or lengths != (p, p, a, a)
        or not -1 <= units.constant < a
        or not (np.isfinite(sizes).all() and np.isfinite(places).all() and (sizes > 0).all())
    ):
        raise FileError("its scaling does not belong to its formula.")


def _stop(name: str) -> Stop:
    if name not in Stop.__members__:
        raise FileError(f"its stop is {name!r}; one of {', '.join(Stop.__members__)} is wanted.")
    return Stop[name]


def _typed(kind: type[T], found: Mapping[str, Any], where: str) -> T:
    """The dataclass `kind` from a JSON object, every value checked against its annotation."""
    values = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        if field.name not in found:
            if field.default is MISSING:
                raise FileError(f"its {where} lacks {field.name!r}.")
            continue
        value = found[field.name]
        if not _has_type(value, hints[field.name]):
            raise FileError(
                f"its {where} has {field.name} = {str(value)[:40]!r}, which is no such."
            )
        values[field.name] = tuple(value) if get_origin(hints[field.name]) is tuple else value
    return kind(**values)


def _has_type(value: Any, hint: Any) -> bool:
    if get_origin(hint) is tuple:
        return isinstance(value, list) and all(_has_type(x, get_args(hint)[0]) for x in value)
    if hint in (int, float):  # a bool is an int to Python, and an int is a float to JSON
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


# --- members -----------------------------------------------------------------------------------


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """The bytes of a member that has at most `limit` of them; its checksum is checked."""
    if archive.namelist().count(name) != 1:
        raise FileError(f"its member {name!r} is missing or there twice.")
    info = archive.getinfo(name)
    if info.file_size > limit:
        raise FileError(f"its member {name!r} has {info.file_size:,} bytes; at most {limit:,} fit.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileError(f"its member {name!r} is compressed in a way that avem does not use.")
    return archive.read(info)


def _numbers(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], finite: bool = True
) -> np.ndarray:
    size = 8 * math.prod(shape) + _MAX_HEADER
    if size > _MAX_ARRAY:
        raise FileError(f"its member {name!r} would have shape {shape}, more than avem saves.")
    array = _array(_member(archive, name, size), name, shape, "f")
    if array.dtype != np.float64 or (finite and not np.isfinite(array).all()):
        raise FileError(f"its member {name!r} holds values that are not finite float64 numbers.")
    return array


def _array(data: bytes, name: str, shape: tuple[int, ...], kinds: str) -> np.ndarray:
    """The array of an .npy member; its header is checked before there is room for it in memory."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise FileError(f"its member {name!r} is no .npy array of version 1.0.")
    found, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_MAX_HEADER)
    if found != shape or dtype.kind not in kinds:
        raise FileError(f"its member {name!r} has shape {found} of {dtype}; {shape} is wanted.")
    stream.seek(0)
    return np.load(stream, allow_pickle=False)


# --- labels of subjects ------------------------------------------------------------------------


def _is_array(labels: np.ndarray) -> bool:
    return labels.dtype.kind in _LABEL_DTYPES


def _subjects(archive: zipfile.ZipFile, record: _Record) -> np.ndarray:
    n = record.n_subjects
    if record.subjects is None:
        labels = _array(_member(archive, _LABELS, _MAX_JSON), _LABELS, (n,), _LABEL_DTYPES)
    elif len(record.subjects) == n:
        labels = np.empty(n, dtype=object)
        labels[:] = [_label_in(*label) for label in record.subjects]
    else:
        raise FileError(f"it has {len(record.subjects)} labels for {n} subjects.")
    if not pd.Index(labels).is_unique:
        raise FileError("two of its subjects have the same label.")
    labels.flags.writeable = False
    return labels


_PLAIN = {kind.__name__: kind for kind in (str, int, float, bool)}
_ISO = {kind.__name__: kind for kind in (dt.date, dt.datetime)}


def _label_out(label: Any) -> list[Any]:
    """[kind, value] of a label, both plain JSON."""
    label = label.item() if isinstance(label, np.generic) else label
    name = type(label).__name__
    if isinstance(label, pd.Timestamp):
        zone = None if label.tz is None else str(label.tz)
        moment = label if zone is None else label.tz_convert("UTC")
        found = ["Timestamp", [moment.isoformat(), label.unit, zone]]
    elif _PLAIN.get(name) is type(label):
        found = [name, label]
    elif _ISO.get(name) is type(label):
        found = [name, label.isoformat()]
    else:
        found = None
    if found is None or not _is_same(_label_in(*found), label):
        raise FileError(
            f"The subject label {label!r} is a {name}, which cannot be saved; numbers, text and "
            "dates can. Turn the subject column into text and fit again."
        )
    return found


def _label_in(kind: str, value: Any) -> Any:
    """The label that `_label_out` took apart."""
    if kind in _PLAIN and type(value) is _PLAIN[kind]:
        return value
    if kind in _ISO:
        return _ISO[kind].fromisoformat(value)
    if kind == "Timestamp":
        text, unit, zone = value
        moment = pd.Timestamp(text)
        return (moment if zone is None else moment.tz_convert(zone)).as_unit(unit)
    raise FileError(f"it has a subject label {value!r} of the unknown kind {kind!r}.")


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other and str(one) == str(other)
