"""The command that shows what avem does: `avem demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from avem.cli._files import check_folder, finish
from avem.cli._fit import PLOTS, TABLES
from avem.cli._options import NoCache, PathOption
from avem.cli._process import say, set_up_jax


def demo(
    out: Annotated[Path, PathOption(help="Folder for the results.")] = Path("demo-output"),
    no_cache: NoCache = False,
) -> None:
    """Fit the mood diary that comes with avem and write everything about it into a folder."""
    check_folder(out, True, TABLES, PLOTS)
    set_up_jax(no_cache)
    import avem
    from avem.data.examples import load_affect

    data = load_affect()
    formula = "valence + arousal ~ stress + (1 + stress | person)"
    say(
        f"A simulated diary of mood: {data['person'].nunique()} people, {len(data):,} prompts, one "
        "in seven of them unanswered.\nMood moves between 3 hidden states; people differ in their "
        "level and in their response to stress.\nIn Python:\n\n"
        f'  avem.MixedHMM("{formula}", n_states=3).fit(\n'
        '      avem.load_affect(), time="beep", sequence="day")\n\n'
        "Fitting (the first run on a machine also compiles, which takes longer) ...\n"
    )
    fitted = avem.MixedHMM(formula, n_states=3).fit(data, time="beep", sequence="day")
    finish(fitted, data, out, PLOTS)
