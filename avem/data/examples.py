"""Data that come with avem."""

from importlib.resources import files

import pandas as pd


def load_affect() -> pd.DataFrame:
    """Return a simulated diary of mood: 60 people, prompted several times on several days.

    Columns ``person``, ``day`` (a sequence), ``beep`` (time within the day), ``stress``, and the
    outcomes ``valence`` and ``arousal``, missing where a prompt was not answered. What the columns
    mean, and the truth behind the data, is in ``avem/data/bundled/affect.md``.

    Returns
    -------
    pandas.DataFrame
        A row per person, day and prompt.

    Examples
    --------
    >>> avem.load_affect()["person"].nunique()
    60
    """
    with (files("avem.data") / "bundled" / "affect.csv").open("rb") as file:
        return pd.read_csv(file)
