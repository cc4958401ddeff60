"""Command lines: any options, any files."""

from __future__ import annotations

from random import Random

from tools.fuzz import odd
from tools.fuzz.case import Case

_BEFORE = """\
from tools.fuzz.damage import *
from tools.fuzz.command_questions import check, folder, spoil
files = folder()
args = []
"""
_TABLES = ["data.csv", "data.tsv", "data.parquet", "semicolons.csv", "future.csv"]
_FITS = ("hmm.avem", "ssm.avem", "nothing.avem", "data.csv", ".")
_WORDS = odd.words(
    """
''; -1; 0; 1; 2; 3; 1e9; nan; 99999999999999999999; x; y; id; time; day; g; 'y ~ 1'; '~ x'; '~ y';
'y ~ x + (1 | id)'; 'y,z'; 'gamma: y ~ 1'; 'gaussian: y ~ x'; gaussian; poisson; bernoulli; full;
1-2; 2-1; 1,2; auto; never; avem; adaptive; é; '\x00'; '\ud800'; --; -; '{out}'; .; /dev/null;
/dev/full; out.csv; out.parquet; out.xlsx; no/such/folder/out.csv; states; outcomes;
fitted; 0.5; 1.0; future.csv; data.csv; hmm.avem; w; k; t; e; weak; survey; frequency; continuous;
'coef[0] == 0'; 'variance[0] >= 0.1'; 'coef[:, 1] equal'; left_to_right; 0-1; 0-1,1-0; days; hours;
gamma; shifted_poisson; free; '*.csv'; 1GB; 64KB; c.ckpt; a,b; 'y ~ offset(x)'; '~ bs(x, df=4)'
"""
)
_OF_TABLES = "--missing-code --force --no-cache"
_OF_FITS = "--time --sequence --subject --seed --starts --max-iter --method --refine --no-plots"
_OPTIONS = {
    "fit": f"--family --outcome --transition --initial --covariance --trials --effect-covariance "
    f"--q-update --plain --batch-size --format --formula --constraint --priors --clusters --known "
    f"--weights --weights-kind --duration --duration-formula --time-scale --moves --event --unit "
    f"--state-names --memory --checkpoint --cluster --standard-errors {_OF_FITS} {_OF_TABLES}",
    "fit-ssm": f"--state --random --horizon --future --effect-covariance --format --time-scale "
    f"--unit --weights --weights-kind --n-latent --state-names {_OF_FITS} "
    f"{_OF_TABLES}",
    "select": f"--latent --family --criterion --folds --by --subject --sequence --clusters "
    f"--transition --outcomes --seed {_OF_TABLES}",
    "decode": _OF_TABLES,
    "predict": f"--future --of --level --effects {_OF_TABLES}",
    "simulate": "--states --seed --force --subjects --times --data",
    "report": f"--title --timelines --thorough --data {_OF_TABLES}",
    "study": "--reps --jobs --out --protocol --quick",
}
_OTHERS = ["--help", "--version", "--nothing", "-x", "--out", "--data", "--effects-by-state"]
_WITHIN = (b",", b'"', b";", b"\n", b"\0", b"\xef\xbb\xbf")
_FIRST = (b"#x\n", b"\n", b"\xef\xbb\xbf", b"\xff\xfe", b"PK")


def make(rng: Random, number: int) -> Case:
    """A command that could be sound, with some options too many, and files that are damaged."""
    command = _command(rng)
    edits = [f"args += {words!r}" for words in command]
    own = _OPTIONS.get(command[0][0], "--help").split()
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        option = rng.choice(own if rng.random() < 0.9 else _OTHERS)
        words = [option, rng.choice(_WORDS).strip("'")][: rng.choice([1, 2, 2, 2])]
        edits.append(f"args += {words!r}")
    if rng.random() < 0.3:
        edits.append(_damage(rng))
    return Case("commands", number, _BEFORE, tuple(edits), "check(args, files)")


def _command(rng: Random) -> list[list[str]]:
    table, fit = (
        rng.choice([*_TABLES, "data.csv.gz", "nothing.csv", *["data.csv"] * 8]),
        rng.choice(_FITS + ("hmm.avem",) * 4),
    )
    columns = [["--time", "time"]] if rng.random() < 0.7 else []
    formula = rng.choice(["y ~ 1 + (1 | id)", "y ~ x + (1 | id)", "y ~ nothing", "y ~", "x", ""])
    out = ["--out", "made.csv"]
    brief = ["--starts", "1", "--max-iter", "2", "--refine", "never"]
    which = rng.random()
    if which < 0.03:
        more = ["--states", "2", "--out", "made", "--no-plots"]
        return [["fit", table, formula], more, brief, *columns]
    if which < 0.04:
        return [["report", fit, table], ["--out", "made.html", "--quick"]]
    if which < 0.06:
        more = ["--outcomes", "y,z", "--latent", "1", "--subject", "id", "--out", "made"]
        return [["fit-ssm", table], more, ["--no-plots"], brief, *columns]
    if which < 0.2:  # options that no fit is made with
        wrong = rng.choice([["--states", "0"], ["--time", "nothing"], ["--family", "x"]])
        return [["fit", table, formula], ["--states", "2", "--out", "made"], brief, wrong]
    if which < 0.3:
        wrong = rng.choice([["--states", "0-1"], ["--criterion", "x"], ["--time", "nothing"]])
        return [["select", table, formula], out, wrong]
    if which < 0.55:
        return [["decode", fit, table], out]
    if which < 0.75:
        ahead = [["--horizon", rng.choice(["1", "3", "0", "-1"])]]
        return [["predict", fit, table], out, *ahead]
    if which < 0.87:
        source = rng.choice([["--data", table], ["--subjects", "2", "--times", "3"], []])
        return [["simulate", fit], out, source]
    if which < 0.93:
        return [["summary", fit]]
    if which < 0.96:
        return [["study", rng.choice(["nothing", "", "../x"])]]
    return [[rng.choice(["", "nothing", "--help", "--version", "fit", "report", "-1"])]]


def _damage(rng: Random) -> str:
    name = rng.choice(["data.csv", "data.tsv", "data.parquet", "hmm.avem", "ssm.avem"])
    at, length = f"{rng.random():.4f}", rng.choice([1, 4, 100])
    how = rng.choice(
        [
            f"flip(data, {at}, {rng.randrange(8)})",
            f"insert(data, {at}, {rng.randbytes(length)!r})",
            f"insert(data, {at}, {rng.choice(_WITHIN)!r})",
            f"insert(data, 0, {rng.choice(_FIRST)!r})",
            f"remove(data, {at}, {length})",
            f"data[: int({at} * len(data))]",
            "data.decode('latin-1').encode('utf-16')",
            "data.replace(b'\\n', b'\\r')",
            "data.replace(b'y', b'x')",
            "b''",
        ]
    )
    return f"spoil(files, {name!r}, lambda data: {how})"
