"""Names that a fit, or its pictures, do not have: what there is in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from avem.errors import did_you_mean

_ERRORS = "fit.standard_errors() has standard errors and intervals of all parameters."
_LATER = "fit.predict(horizon=10) has what follows each sequence; its picture is plot.forecast()."
_PATHS = (
    "fit.decode() has the most probable path of states, fit.most_probable_states() that of rows."
)
_CHANCES = "fit.state_probabilities() has the probability of each state at every row."
_LOGLIK = "fit.loglik() has the log likelihood."
_EFFECTS = "fit.effects() has every subject's deviations, fit.coefficients() its own coefficients."
_TABLE = "fit.table() has all estimates, fit.params the same as arrays."

ANY_FIT = {
    **dict.fromkeys(("bse", "pvalues", "conf_int", "confint", "se"), _ERRORS),
    **dict.fromkeys(("llf", "logLik", "log_likelihood"), _LOGLIK),
    **dict.fromkeys(("ranef", "random_effects"), _EFFECTS),
    **dict.fromkeys(("coef", "fixef", "coef_", "estimates", "parameters"), _TABLE),
    "forecast": _LATER,
}
"""What other software calls it."""

_NUMBERS = "The states of a state-space model are numbers that vary over time, not kinds"
_COURSE = f"{_NUMBERS}: no row is in one of them. fit.states() has their values, with intervals."
_TIME = (
    f"{_NUMBERS}: no time is spent in one of them. fit.states() has their values over time, "
    "fit.transitions every subject's own dynamics."
)
_LINES = (
    "fit.table() has the coefficients of covariates, fit.standard_errors() how certain they are."
)

_STATES_NOW = (
    "fit.states(kind='filtered') has the states given each row and those before it, "
    "fit.predictions() each outcome given the rows before."
)
SSM_FIT = ANY_FIT | {
    **dict.fromkeys(("decode", "most_probable_states", "state_probabilities"), _COURSE),
    **dict.fromkeys(("occupancy", "stationary", "dwell"), _TIME),
    **dict.fromkeys(("rates", "survival", "transition_probabilities"), _TIME),
    "covariate": _LINES,
    "clusters": "Only hidden Markov models (avem.MixedHMM) have types of subjects. fit.effects() "
    "has how every subject differs.",
    **dict.fromkeys(
        ("filter", "monitor"),
        f"Only fits of hidden Markov models (avem.MixedHMM) have it. {_STATES_NOW}",
    ),
    "icl": "ICL counts how sure states are that can be counted: use fit.aic() or fit.bic().",
}

HMM_FIT = ANY_FIT | {
    "states": f"{_PATHS} {_CHANCES}",
    "viterbi": _PATHS,
    "predict_proba": _CHANCES,
    "drifts": "Only state-space models (avem.MixedSSM) in continuous time have drifts. fit.rates() "
    "has the rates of a hidden Markov model in continuous time.",
    "loadings": "Only state-space models (avem.MixedSSM) have loadings. fit.coefficients() has "
    "every subject's own coefficients, by state.",
}

SSM_PLOTS = {
    **dict.fromkeys(
        ("occupancy", "stationary", "dwell"), f"{_NUMBERS}: fit.plot.states() draws them."
    ),
    "emissions": "What states give to the outcomes is drawn by fit.plot.loadings().",
    "transitions": "fit.transitions has every subject's matrix, fit.plot.effects() draws what "
    "differs between subjects.",
    "covariate": _LINES,
    "map": f"{_NUMBERS}: there are none to colour places by. fit.plot.states() draws them.",
    "predict": "fit.plot.forecast() draws what fit.predict() gives.",
}

HMM_PLOTS = {
    "decode": "fit.plot.states() draws rows in the colours of their states.",
    "loadings": "Only state-space models (avem.MixedSSM) have loadings. fit.plot.emissions() draws "
    "what each state emits.",
    "predict": "fit.plot.forecast() draws what fit.predict() gives.",
}


class SaysWhere:
    """Says where to look when it is asked for a name that it does not have."""

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    """By name, a sentence on what there is in its place."""

    if not TYPE_CHECKING:  # a type checker shall know which names there are

        def __getattr__(self, name: str):
            kind = type(self)
            if hasattr(kind, name):  # a property that failed: with its own error
                return object.__getattribute__(self, name)
            words = f"{kind.__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                public = [word for word in dir(self) if not word.startswith("_")]
                words += f". {kind._elsewhere[name]}" if name in kind._elsewhere else "."
                words += "" if name in kind._elsewhere else did_you_mean(name, public)
            # Without the object Python does not guess once more.
            raise AttributeError(words, name=name, obj=None)
