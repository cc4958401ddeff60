"""Does an installed avem work? Run by `check_package.py` in an environment of its own.

Only what comes with avem is there: no extras, no source.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import avem


def main() -> None:
    """Import, bundled data, a fit, a saved file, the command, and what is said without extras."""
    with tempfile.TemporaryDirectory(prefix="avem-smoke-") as name:
        folder = Path(name)
        print(f"avem {avem.__version__} from {Path(avem.__file__).parent}")
        assert avem.__version__ == version("avem")
        assert (Path(avem.__file__).parent / "py.typed").exists()
        if "--pure" not in sys.argv:
            kernels()
        library(folder)
        command(folder)
        extras(folder)


def kernels() -> None:
    """The wheel's own libraries are used, without a compiler."""
    from avem.kernels.cpp import build

    os.environ.update(CXX="", PATH="")
    assert build.SHIPPED.is_dir()
    assert build.find("gaussian_chain", STATES=3, OUTCOMES=2) is not None
    assert build.find("forward_backward", STATES=4) is not None


def library(folder: Path) -> None:
    diary = avem.load_affect()
    some = diary[diary["person"].isin(diary["person"].unique().tolist()[:6])]
    model = avem.MixedHMM("valence ~ stress + (1 | person)", n_states=2)
    fit = model.fit(some, time="beep", sequence="day", n_starts=1, refine=None)
    assert len(fit.decode()) == len(some)
    fit.plot.bound().savefig(folder / "bound.png")
    fit.save(folder / "fit.avem")
    back = avem.load(folder / "fit.avem")
    assert isinstance(back, avem.HMMFit)
    assert back.decode(some).equals(fit.decode())
    some.to_csv(folder / "diary.csv", index=False)
    print(fit)


def command(folder: Path) -> None:
    program = Path(sys.executable).with_name("avem")
    assert "fit-ssm" in said(program, "--help")
    assert said(program, "--help").count("decode") == said("-m", "--help").count("decode")
    assert said(program, "--version") == said("-m", "--version") == f"avem {avem.__version__}\n"
    out = folder / "out"
    words = ["diary.csv", "valence ~ 1 + (1 | person)", "--states", "2", "--time", "beep"]
    words += ["--sequence", "day", "--starts", "1", "--refine", "never", "--no-cache"]
    said(program, "fit", *words, "--no-plots", "--out", str(out), cwd=folder)
    assert (out / "report.html").exists()
    said(program, "decode", str(out / "fit.avem"), "diary.csv", "--out", "s.csv", cwd=folder)


def said(program: Path | str, *words: str, cwd: Path | None = None) -> str:
    """What the command, or with "-m" the module, writes."""
    start = [sys.executable, "-I", "-m", "avem"] if program == "-m" else [str(program)]
    done = subprocess.run([*start, *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def extras(folder: Path) -> None:
    """What needs an extra that is not here says which."""
    from avem.integrations.sklearn import HMMEstimator

    fit = avem.load(folder / "fit.avem")
    (folder / "table.parquet").write_bytes(b"PAR1")
    for name, package, use in (
        ("arviz", "arviz", fit.to_arviz),
        ("sklearn", "sklearn", lambda: HMMEstimator("y ~ 1")),
        ("parquet", "pyarrow", lambda: _read(folder / "table.parquet")),
    ):
        if find_spec(package) is not None:
            print(f"{package} is installed here; what is said without it was not tried.")
            continue
        words = "nothing"
        try:
            use()
        except avem.AvemError as error:
            words = str(error)
        assert f"pip install 'avem[{name}]'" in words, words


def _read(path: Path) -> object:
    from avem.data.files import read_table

    return read_table(path, {"subject": "id", "time": None, "sequence": None}, ())


if __name__ == "__main__":
    main()
