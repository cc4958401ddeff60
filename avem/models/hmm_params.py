"""Parameters as the user knows them: names, shapes, values, and the way to theta and back.

Internally a block with linear predictors has one array of coefficients per state (`theta`, see
`hmm_kernel`). The user sees ``coef`` (states, rows, terms) for the locations, one row per outcome
or level, on the scale of the link; other parameters by their own names, as natural values (states,
outcomes) when they have no formula and as coefficients otherwise. With several outcomes in a list,
names are prefixed: ``step.coef``, ``step.shape``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from avem.components.param_info import ParamInfo, Params, check_arrays
from avem.components.structure import Line, Piece, moves_as_matrix, moves_by_distance
from avem.families import Custom, Gaussian
from avem.models.hmm import HMMModel

CHAIN_PARAMS = ("initial", "initial_coef", "transition", "transition_coef", "effect_covariance")
"""The parameters that say nothing of the outcomes."""


# --- which parameters a model has ---------------------------------------------------------------


def param_info(model: HMMModel) -> dict[str, ParamInfo]:
    """Every parameter of the model, in the order of `fit.params`."""
    k, d, structure = model.n_states, model.n_effects, model.structure
    out: dict[str, ParamInfo] = {}
    if structure.start:
        terms = structure.start[0].terms
        axes = f"states x terms ({', '.join(terms)}); the first row is 0"
        out["initial_coef"] = ParamInfo((k, len(terms)), "free", axes)
    elif not model.stationary:
        out["initial"] = ParamInfo((k,), "simplex", "states")
    if structure.moves and not _plain(structure.moves):
        terms = structure.moves[0].terms
        axes = f"from state x to state x terms ({', '.join(terms)}); 0 for staying"
        out["transition_coef"] = ParamInfo((k, k, len(terms)), "free", axes)
    else:
        out["transition"] = ParamInfo((k, k), "simplex", "from state x to state")
    for pieces in by_spec(model):
        out.update(_spec_info(k, pieces))
    names = ", ".join(model.effect_names)
    out["effect_covariance"] = ParamInfo((d, d), "covariance", f"effects ({names}), both ways")
    return out


def by_spec(model: HMMModel) -> list[list[Piece]]:
    """The pieces that come from one formula, together."""
    pieces = model.structure.pieces
    return [
        [piece for piece in pieces if piece.spec == spec]
        for spec in sorted({p.spec for p in pieces})
    ]


def _spec_info(k: int, pieces: list[Piece]) -> dict[str, ParamInfo]:
    prefix, family = pieces[0].prefix, pieces[0].family
    if isinstance(family, Custom):
        return {prefix + name: ParamInfo((k,), "free", "states") for name, _ in family.params}
    rows = [line for piece in pieces for line in piece.lines if not line.parameter]
    labels, terms = ", ".join(line.label for line in rows), ", ".join(rows[0].terms)
    axes = f"states x outcomes ({labels}) x terms ({terms})"
    shape = (k, len(rows), len(rows[0].terms))
    out = {prefix + "coef": ParamInfo(shape, "free", axes)}
    outcomes = [name for piece in pieces for name in piece.outcomes]
    if isinstance(family, Gaussian):
        kind = "covariance" if family.covariance == "full" else "positive"
        words = {
            "spherical": "states",
            "diagonal": f"states x outcomes ({', '.join(outcomes)})",
            "full": "states x outcomes x outcomes",
        }[family.covariance]
        shape = family.noise_shape(k, len(outcomes))
        out[prefix + family.noise_name] = ParamInfo(shape, kind, words)
        return out
    for i, line in enumerate(pieces[0].lines):
        if not line.parameter:
            continue
        shape, words = (k, len(outcomes)), f"states x outcomes ({', '.join(outcomes)})"
        if line.part < 0:
            link = family.parameters[i].link
            out[prefix + line.parameter] = ParamInfo(shape, "natural", words, link)
        else:
            words += f" x terms ({', '.join(line.terms)})"
            shape = (*shape, len(line.terms))
            out[f"{prefix}{line.parameter}_coef"] = ParamInfo(shape, "free", words)
    return out


def _plain(moves: tuple[Line, ...]) -> bool:
    """The transitions are one matrix, although their M-step has no closed form."""
    return moves[0].terms == ("Intercept",) and not moves[0].z_cols


# --- theta and back -----------------------------------------------------------------------------


def params_out(model: HMMModel, theta: Params) -> Params:
    """The user's parameters from theta."""
    return _Translation(model).out(theta)


def params_in(model: HMMModel, params: Params) -> Params:
    """Theta from all of the user's parameters."""
    return _Translation(model).into(params)


def override(model: HMMModel, theta: Params, params: Params) -> Params:
    """Theta with some of the user's parameters put in the place of its own."""
    return params_in(model, {**params_out(model, theta), **params}) if params else theta


def free_coefs(model: HMMModel, fixed: frozenset[str]) -> dict[str, np.ndarray]:
    """For every ``coef`` entry of theta, which coefficients of a state are free."""
    out: dict[str, np.ndarray] = {}
    structure = model.structure
    for piece in structure.pieces:
        prefix = piece.prefix
        if isinstance(piece.family, Custom):
            names = [prefix + name for name, _ in piece.family.params]
            widths = [1] * len(names)
        elif isinstance(piece.family, Gaussian):
            names, widths = [prefix + "coef"], [1]
        else:
            names = [prefix + param_name(line) for line in piece.lines]
            widths = [len(line.terms) for line in piece.lines]
        free = [name not in fixed for name in names]
        out[piece.key + "coef"] = np.repeat(np.array(free, bool), widths)
    for key, lines, names in (
        ("moves.coef", structure.moves, {"transition", "transition_coef"}),
        ("start.coef", structure.start, {"initial_coef"}),
    ):
        if lines:
            size = sum(len(line.terms) for line in lines)
            out[key] = np.full(size, not names & fixed)
    return out


_NARROWEST = np.log(1e-3)
"""Of the log of a scale, in the units of the fit; a variance is then a millionth."""


def coef_limits(model: HMMModel) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Lowest and highest coefficients of the families whose density could close in on a value."""
    out = {}
    for piece in model.structure.pieces:
        if not piece.family.parameters:
            continue
        low, high = [], []
        for line, parameter in zip(piece.lines, piece.family.parameters, strict=True):
            alone = line.part < 0  # one number per state
            narrow = [_NARROWEST if alone and parameter.collapse < 0 else -np.inf]
            wide = [-2 * _NARROWEST if alone and parameter.collapse > 0 else np.inf]
            low += narrow * len(line.terms)
            high += wide * len(line.terms)
        if np.isfinite([*low, *high]).any():
            out[piece.key + "coef"] = (np.array(low), np.array(high))
    return out


def param_name(line: Line) -> str:
    """The user's parameter that holds a line's coefficients, without its prefix."""
    if not line.parameter:
        return "coef"
    return line.parameter if line.part < 0 else f"{line.parameter}_coef"


class _Translation:
    def __init__(self, model: HMMModel) -> None:
        self.model, self.scaling = model, model.scaling
        self.states = np.arange(model.n_states)
        self.effects = self.scaling.effects_to_user(model.structure, line_units(model))

    # Internal coefficients b of a line are T b s + c e in the user's units.

    def _units(self, piece: Piece, i: int) -> tuple[float, float]:
        at = self.model.y_cols[self.model.structure.pieces.index(piece)]
        if isinstance(piece.family, Gaussian):
            return self.scaling.scale[at[i]], self.scaling.centre[at[i]]
        if piece.family.location_scale and i < 2:
            scale, centre = self.scaling.scale[at[0]], self.scaling.centre[at[0]]
            return (scale, centre) if i == 0 else (1.0, np.log(scale))
        return 1.0, 0.0

    def _line_out(self, b: np.ndarray, line: Line, unit: float = 1.0, shift: float = 0.0):
        out = b @ self.scaling.to_user(line.x_cols).T * unit
        if shift:
            out[..., line.x_cols.index(self.scaling.constant)] += shift
        return out

    def _line_in(self, b: np.ndarray, line: Line, unit: float = 1.0, shift: float = 0.0):
        b = np.array(b, float)
        if shift:
            b[..., line.x_cols.index(self.scaling.constant)] -= shift
        return b @ np.linalg.inv(self.scaling.to_user(line.x_cols)).T / unit

    def out(self, theta: Params) -> Params:
        structure, out = self.model.structure, {}
        k = self.model.n_states
        if structure.start:
            b = theta["start.coef"].reshape(k - 1, -1)
            out["initial_coef"] = np.zeros((k, b.shape[1]))
            out["initial_coef"][1:] = self._line_out(b, structure.start[0])
        elif not self.model.stationary:
            out["initial"] = np.array(theta["initial"])
        if structure.moves:
            b = theta["moves.coef"].reshape(k, k - 1, -1)
            full = moves_as_matrix(self._line_out(b, structure.moves[0]))
            if _plain(structure.moves):
                out["transition"] = softmax(full[:, :, 0], axis=1)
            else:
                out["transition_coef"] = full
        else:
            out["transition"] = np.array(theta["transition"])
        for pieces in by_spec(self.model):
            out.update(self._spec_out(theta, pieces))
        out["effect_covariance"] = self.effects @ theta["effect_covariance"] @ self.effects.T
        return out

    def _spec_out(self, theta: Params, pieces: list[Piece]) -> Params:
        prefix, family = pieces[0].prefix, pieces[0].family
        if isinstance(family, Custom):
            coef = theta[pieces[0].key + "coef"]
            return {prefix + name: coef[:, i].copy() for i, (name, _) in enumerate(family.params)}
        if isinstance(family, Gaussian):
            piece = pieces[0]
            coef = np.array(theta[piece.key + "coef"])
            for j, line in enumerate(piece.lines):
                coef[:, j] = self._line_out(coef[:, j], line, *self._units(piece, j))
            scale = self._noise_scale(piece)
            covariance = theta[piece.key + "covariance"] * np.outer(scale, scale)
            return {
                prefix + "coef": coef,
                prefix + family.noise_name: family.noise_to_params(covariance),
            }
        found: dict[str, list[np.ndarray]] = {}
        for piece in pieces:
            at = 0
            for i, line in enumerate(piece.lines):
                b = theta[piece.key + "coef"][:, at : at + len(line.terms)]
                at += len(line.terms)
                b = self._line_out(b, line, *self._units(piece, i))
                if line.parameter and line.part < 0:
                    b = piece.family.parameters[i].link.to_natural(b[:, 0])
                found.setdefault(prefix + param_name(line), []).append(b)
        return {name: np.stack(parts, axis=1) for name, parts in found.items()}

    def _noise_scale(self, piece: Piece) -> np.ndarray:
        return np.array([self._units(piece, j)[0] for j in range(len(piece.outcomes))])

    def into(self, params: Params) -> Params:
        structure, theta = self.model.structure, {}
        k = self.model.n_states
        if structure.start:
            relative = np.array(params["initial_coef"], float)
            b = self._line_in((relative - relative[:1])[1:], structure.start[0])
            theta["start.coef"] = b.reshape(1, -1)
        elif not self.model.stationary:
            theta["initial"] = np.array(params["initial"], float)
        if structure.moves:
            full = params.get("transition_coef")
            if full is None:
                full = np.log(np.maximum(params["transition"], 1e-300))[:, :, None]
            full = full - full[self.states, self.states][:, None]
            inside = self._line_in(moves_by_distance(full), structure.moves[0])
            theta["moves.coef"] = inside.reshape(k, -1)
        else:
            theta["transition"] = np.array(params["transition"], float)
        for pieces in by_spec(self.model):
            theta.update(self._spec_in(params, pieces))
        inverse = np.linalg.inv(self.effects)
        theta["effect_covariance"] = inverse @ params["effect_covariance"] @ inverse.T
        return theta

    def _spec_in(self, params: Params, pieces: list[Piece]) -> Params:
        prefix, family = pieces[0].prefix, pieces[0].family
        if isinstance(family, Custom):
            parts = [params[prefix + name] for name, _ in family.params]
            return {pieces[0].key + "coef": np.stack(parts, axis=1).astype(float)}
        if isinstance(family, Gaussian):
            piece = pieces[0]
            coef = np.array(params[prefix + "coef"], float)
            for j, line in enumerate(piece.lines):
                coef[:, j] = self._line_in(coef[:, j], line, *self._units(piece, j))
            noise = params[prefix + family.noise_name]
            covariance = family.noise_from_params(noise, len(piece.outcomes))
            scale = self._noise_scale(piece)
            return {
                piece.key + "coef": coef,
                piece.key + "covariance": covariance / np.outer(scale, scale),
            }
        theta, seen = {}, {}
        for piece in pieces:
            parts = []
            for i, line in enumerate(piece.lines):
                name = prefix + param_name(line)
                row = seen[name] = seen.get(name, -1) + 1
                b = np.asarray(params[name], float)[:, row]
                if line.parameter and line.part < 0:
                    b = piece.family.parameters[i].link.to_eta(b)[:, None]
                parts.append(self._line_in(b, line, *self._units(piece, i)))
            theta[piece.key + "coef"] = np.concatenate(parts, axis=1)
        return theta


def line_units(model: HMMModel) -> dict[Line, float]:
    """The unit of the outcome behind each line whose effects have one."""
    out: dict[Line, float] = {}
    for piece, at in model.each_piece():
        if isinstance(piece.family, Gaussian):
            pairs = zip(piece.lines, at, strict=True)
            out.update({line: model.scaling.scale[column] for line, column in pairs})
        elif piece.family.location_scale:
            out[piece.lines[0]] = model.scaling.scale[at[0]]
    return out


def line_etas(piece: Piece, coef: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, ...]:
    """(states, rows) of each linear predictor of a piece at effects 0, from design rows `a`."""
    out, at = [], 0
    for line in piece.lines:
        out.append(coef[:, at : at + len(line.terms)] @ a[:, list(line.x_cols)].T)
        at += len(line.terms)
    return tuple(out)


def effects_in(model: HMMModel, effects: np.ndarray) -> np.ndarray:
    """Internal effects (d, subjects) from the user's (subjects, d)."""
    return np.linalg.solve(_Translation(model).effects, effects.T)


def effects_cov_in(model: HMMModel, cov: np.ndarray) -> np.ndarray:
    """Internal covariances (d, d, subjects) from the user's (subjects, d, d)."""
    back = np.linalg.inv(_Translation(model).effects)
    return np.moveaxis(back @ cov @ back.T, 0, -1)


def effects_out(
    model: HMMModel, mean: np.ndarray, cov: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The user's (subjects, d) and (subjects, d, d) from (d, subjects) and (d, d, subjects)."""
    matrix = _Translation(model).effects
    return (matrix @ mean).T, matrix @ np.moveaxis(cov, -1, 0) @ matrix.T


# --- checks -------------------------------------------------------------------------------------


def check_params(given: Any, model: HMMModel, where: str) -> Params:
    """The given parameters as arrays, or an error that says which is wrong and how."""
    return check_arrays(given, param_info(model), where)
