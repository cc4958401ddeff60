"""Names for fits that have none: what tells them apart."""

from __future__ import annotations

from collections.abc import Sequence

from avem.fits.fit import Fit

_LONGEST = 60


def names_of(fits: Sequence[Fit]) -> list[str]:
    """What each fit has and not all of them have; numbers from 1 where that tells none apart."""
    facts = [_facts(fit) for fit in fits]
    common = set(facts[0]).intersection(*facts[1:])
    own = [[fact for fact in found if fact not in common] for found in facts]
    names = [", ".join(o) or fit.model.spec.text for o, fit in zip(own, fits, strict=True)]
    if len(set(names)) < len(names) or max(map(len, names)) > _LONGEST:
        return [str(number) for number in range(1, len(fits) + 1)]
    return names


def _facts(fit: Fit) -> list[str]:
    """The model, from the first lines of the summary, and how it was fitted, a few words each."""
    first, *middle, last = fit._head()
    model = [first.partition(": ")[2], *middle, *last.split(", ")]
    made = [f"method {fit.info.method}", "refined" if fit.info.refined else "not refined"]
    return [fact for fact in (*model, *made) if 0 < len(fact) <= _LONGEST]
