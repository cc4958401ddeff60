"""Types of subjects and states that are known in part, on real panels."""

import numpy as np
import pytest

import avem
from tests.test_other_software import read


@pytest.mark.slow
def test_pilot_whales_are_of_two_types():
    """A third type is a single whale, whom hardly a start finds."""
    whales = read("pilotwhale.csv").rename(columns=lambda name: name.replace(".", "_"))
    kinds = {
        "dive_dur": "gamma",
        "dive_depth": "weibull",
        "GR_speed2": "gamma",
        "dive_CS_pres": "bernoulli",
        "dive_SS_pres": "bernoulli",
        "GR_tight": "bernoulli",
    }
    outcomes = [avem.outcome(f"{name} ~ 1", family) for name, family in kinds.items()]
    model = avem.MixedHMM(outcomes, 3, n_clusters=2)
    found = avem.select(model, whales, clusters=[1, 2], subject="ind", progress=False)
    one, two = found.fits[1], found.fits[2]
    assert found.n_clusters == 2
    assert two.n_params == one.n_params + 9
    assert float(two.loglik()) - float(one.loglik()) == pytest.approx(59.5, abs=0.5)
    assert two.info.starts_agreeing > 2
    chances = two.clusters()[["cluster_0", "cluster_1"]].max(axis=1)
    assert (chances > 0.98).all()
    assert two.params["clusters"][0] < 0.7


@pytest.mark.slow
def test_labels_of_one_state_agree_with_what_was_found_without_them():
    """The careful state is known where care paid most; elsewhere, labels cost what they say."""
    trials = read("speed.csv").assign(who=1)
    outcomes = [avem.outcome("rt ~ 1"), avem.outcome("corr ~ 1", avem.Bernoulli(("inc", "cor")))]
    keys = {"subject": "who", "sequence": "series"}
    free = avem.MixedHMM(outcomes, 2, transition="~ Pacc").fit(trials, **keys)

    def told(where):
        names = ["fast", "careful"]
        model = avem.MixedHMM(outcomes, 2, transition="~ Pacc", known="mark", state_names=names)
        return model.fit(trials.assign(mark=np.where(where, "careful", None)), **keys)

    paid = (trials["Pacc"] >= trials["Pacc"].quantile(0.9)).to_numpy()
    right = told(paid)
    assert float(right.loglik()) == pytest.approx(float(free.loglik()), abs=1e-3)
    careful = np.asarray(free.decode()) == 1
    assert ((np.asarray(right.decode()) == "careful") == careful).all()
    wrong = told(np.random.default_rng(0).random(len(trials)) < 0.1)  # the control
    assert float(wrong.loglik()) < float(free.loglik()) - 50
