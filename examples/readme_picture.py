"""Make the picture in the README: three people of the bundled diary, coloured by decoded state."""

from pathlib import Path

import avem

OUT = Path(__file__).parents[1] / "docs" / "images" / "states.png"

if __name__ == "__main__":
    diary = avem.load_affect()
    model = avem.MixedHMM("valence + arousal ~ stress + (1 + stress | person)", n_states=3)
    fit = model.fit(diary, time="beep", sequence="day")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    fit.plot.states(["p10", "p14", "p46"], figsize=(11, 5.2)).savefig(OUT, dpi=110)
