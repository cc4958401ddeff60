"""The command `avem fit-ssm`: what it hands on, and what it writes."""

import pandas as pd
import pytest
from typer.testing import CliRunner

import avem
from avem.cli import app
from avem.data import Panel
from avem.fits import report
from tests.ssm_truth import fit_at, specification, true_fit

TABLES = ["effects", "forecast", "parameters", "residuals", "states", "whiteness"]
PLOTS = ["bound", "effects", "forecast", "loadings", "residuals", "states"]
FILES = sorted(["fit.avem", "report.html", "summary.txt", *(f"{name}.csv" for name in TABLES)])


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"AVEM_NO_CACHE": "1"})


class StandIn:
    """A model whose fit is the truth, and which keeps what it was called with."""

    calls = ()

    def __init__(self, outcomes, n_latent, **options):
        self.outcomes, self.n_latent, self.options = outcomes, n_latent, options
        text = outcomes if isinstance(outcomes, str) else f"{' + '.join(outcomes)} ~ 1"
        self.spec = specification(text, n_latent, random=("transition",))

    def fit(self, data, **options):
        type(self).calls = (self.outcomes, self.n_latent, self.options, options)
        fit, _ = true_fit(self.spec, n_subjects=3, n_times=8)
        panel = Panel.from_frame(data, "id", options["time"], options["sequence"])
        return fit_at(fit.model, fit.params, fit.effects_mean, fit.effects_cov, panel)


@pytest.fixture
def data(tmp_path):
    _, frame = true_fit(n_subjects=3, n_times=8)
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(avem, "MixedSSM", StandIn, raising=False)
    # Of a stand-in there is little to report.
    monkeypatch.setattr(report, "write_report", lambda fit, path, **_: path.write_text("page"))


OPTIONS = ["--latent", 2, "--subject", "id", "--time", "t"]


@pytest.mark.usefixtures("stand_in", "blank_pictures")
def test_everything_is_written(data, tmp_path):
    out = tmp_path / "out"
    words = ["--outcomes", "y1, y2,y3", *OPTIONS, "--refine", "never", "--horizon", 3]
    result = run("fit-ssm", data, *words, "--random", "transition", "--out", out)
    assert result.exit_code == 0, result.output
    assert StandIn.calls == (
        ["y1", "y2", "y3"],
        2,
        {"subject": "id", "random": "transition"},
        {"time": "t", "sequence": None, "seed": 0, "refine": None}
        | {"weights": None, "weights_kind": "survey"},
    )
    written = sorted(path.name for path in out.iterdir())
    assert written == sorted([*FILES, *(f"{name}.png" for name in PLOTS)])
    states = pd.read_csv(out / "states.csv")
    assert list(states)[:3] == ["id", "t", "state_0"]
    assert (states["t"] == pd.read_csv(data)["t"]).all()
    assert pd.read_csv(out / "forecast.csv")["step"].max() == 3
    again = run("fit-ssm", data, *words, "--out", out)
    assert again.exit_code == 2
    assert "--force" in again.output


@pytest.mark.usefixtures("stand_in")
def test_a_forecast_without_covariates_is_left_out(data, tmp_path):
    words = ["--outcomes", "y1 + y2 ~ x", *OPTIONS, "--no-plots"]
    result = run("fit-ssm", data, *words, "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    assert "needs 'x' at every step ahead" in result.output
    assert not (tmp_path / "one" / "forecast.csv").exists()
    later = pd.DataFrame({"id": ["s0", "s1", "s2"], "t": 8, "x": 0.5})
    later.to_csv(tmp_path / "later.csv", index=False)
    ahead = ["--horizon", 1, "--future", tmp_path / "later.csv", "--out", tmp_path / "two"]
    result = run("fit-ssm", data, *words, *ahead)
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "two" / "forecast.csv")) == 3 * 2


@pytest.mark.usefixtures("blank_pictures")
def test_a_saved_fit_is_read_by_the_other_commands(data, tmp_path):
    out = tmp_path / "out"
    words = ["--outcomes", "y1,y2,y3", *OPTIONS[2:], "--n-latent", 1, "--no-plots"]
    result = run("fit-ssm", data, *words, "--refine", "never", "--starts", 1, "--out", out)
    assert result.exit_code in (0, 3), result.output
    assert sorted(path.name for path in out.iterdir()) == FILES
    saved = out / "fit.avem"
    assert "loading" in run("summary", saved).output

    result = run("decode", saved, data, "--out", tmp_path / "states.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "states.csv")
    pd.testing.assert_frame_equal(found, pd.read_csv(out / "states.csv"))
    assert list(found) == ["id", "t", "state_0", "state_0_sd", "state_0_lower", "state_0_upper"]

    size = ["--subjects", 4, "--times", 5, "--seed", 1]
    result = run("simulate", saved, *size, "--states", "x", "--out", tmp_path / "drawn.csv")
    assert result.exit_code == 0, result.output
    drawn = pd.read_csv(tmp_path / "drawn.csv")
    assert drawn.shape == (20, 6)
    assert {"y1", "y2", "y3", "x_0"} <= set(drawn)
    loading = avem.load(saved).params["loading_mean"][:, 0]
    strongest = f"y{abs(loading).argmax() + 1}"
    assert abs(drawn["x_0"].corr(drawn[strongest])) > 0.3
    taken = run("simulate", saved, *size, "--states", "y", "--out", tmp_path / "new.csv")
    assert taken.exit_code == 0  # y_0 is not y
    data = tmp_path / "drawn.csv"
    taken = run("simulate", saved, "--data", data, "--states", "x", "--out", tmp_path / "two.csv")
    assert taken.exit_code == 2
    assert "'x_0' already" in taken.output


@pytest.mark.slow
def test_numbers_of_latent_states_are_compared(data, tmp_path):
    out = tmp_path / "table.csv"
    names = ["--subject", "id", "--time", "t"]
    result = run("select", data, "y1, y2 ,y3", "--latent", "1,2", *names, "--out", out)
    assert result.exit_code == 0, result.output
    assert "1 latent state" in result.output
    assert pd.read_csv(out)["n_latent"].tolist() == [1, 2]
    wrong = run("select", data, "y1,y2", "--latent", 1, "--states", 2, *names, "--out", out)
    assert wrong.exit_code == 2
    wrong = run("select", data, "y1,y2", "--latent", "x", *names, "--force", "--out", out)
    assert "--latent 'x': numbers are wanted" in wrong.output
