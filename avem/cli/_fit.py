"""The command that fits a hidden Markov model: `avem fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

from typer import Argument, Option

from avem.cli._files import check_folder, finish, read_for, table_ending
from avem.cli._options import (
    DataFile,
    Force,
    MissingCodes,
    NoCache,
    NoPlots,
    OutFolder,
    PathOption,
    Seed,
    SequenceColumn,
    StateNames,
    SubjectColumn,
    TableFormat,
    TimeColumn,
    TimeScale,
    TimeUnit,
    WeightColumn,
    WeightsKind,
    given_options,
)
from avem.cli._outcomes import Defaults, names_in, read_outcomes
from avem.cli._process import set_up_jax
from avem.cli._scale import check_scan_folder, cluster_at, finish_scan, scan_for
from avem.errors import ModelError

TABLES = ("parameters", "effects", "states")
PLOTS = ("states", "effects", "bound", "emissions")


def fit(
    file: DataFile,
    states: Annotated[int, Option(help="Number of states.")],
    out: OutFolder,
    formula: Annotated[
        str | None,
        Argument(metavar="FORMULA", help="Such as 'y1 + y2 ~ x + (1 + x | person)'."),
    ] = None,
    named_formula: Annotated[str | None, Option("--formula", help="FORMULA, as an option.")] = None,
    family: Annotated[
        str, Option(help="Of the outcomes: gaussian, bernoulli, poisson, gamma, ...")
    ] = "gaussian",
    outcome: Annotated[
        list[str] | None,
        Option(
            metavar="OUTCOME",
            help="Instead of FORMULA, for outcomes of several families; repeatable. Such as "
            "'gamma: step ~ x + (1 | id)', or with a formula for a parameter of the family, "
            "'gamma(shape ~ x): step ~ 1'.",
        ),
    ] = None,
    transition: Annotated[
        str,
        Option(
            help="Formula of the transitions: '~ x + (1 | person)'; or a word for those that there "
            "are: left_to_right, banded, absorbing."
        ),
    ] = "~ 1",
    initial: Annotated[str, Option(help="Formula of the first state, or: stationary.")] = "~ 1",
    time_scale: TimeScale = "discrete",
    moves: Annotated[
        str | None,
        Option(
            metavar="A-B,...",
            help="Which there are: all, left_to_right, banded, absorbing, or pairs of states.",
            show_default="all",
        ),
    ] = None,
    event: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="In continuous time: 1 where a state that is never left was entered exactly then.",
        ),
    ] = None,
    unit: TimeUnit = None,
    known: Annotated[
        str | None, Option(metavar="COLUMN", help="What is known of rows' states: labels, or a|b.")
    ] = None,
    constraint: Annotated[
        list[str] | None,
        Option(
            metavar="SENTENCE",
            help="What parameters must be, repeatable: \"coef[0, 'x'] == 0\", \"coef[:, 'x'] "
            'equal", "variance[0] >= 0.1".',
        ),
    ] = None,
    clusters: Annotated[
        int, Option(help="Types of subjects, each with first states and transitions of its own.")
    ] = 1,
    priors: Annotated[
        str | None,
        Option(help="weak: keep variances and probabilities from 0.", show_default="none"),
    ] = None,
    duration: Annotated[
        str | None,
        Option(
            metavar="WORD[,WORD...]",
            help="How long stays last, where not as in a Markov chain: geometric (as there), "
            "shifted_poisson, negative_binomial, log_normal or gamma; one for all states, or one "
            "for each. Or free, for all: every length has its own probability.",
        ),
    ] = None,
    duration_formula: Annotated[
        str, Option(help="Of how long stays last: '~ x + (1 | person)'.")
    ] = "~ 1",
    time: TimeColumn = None,
    sequence: SequenceColumn = None,
    subject: SubjectColumn = None,
    covariance: Annotated[
        str | None,
        Option(
            help="Of gaussian outcomes within a state: spherical, diagonal or full.",
            show_default="diagonal",
        ),
    ] = None,
    trials: Annotated[
        str | None,
        Option(
            metavar="COLUMN", help="Of binomial outcomes: column with their number, or the number."
        ),
    ] = None,
    weights: WeightColumn = None,
    weights_kind: WeightsKind = "survey",
    effect_covariance: Annotated[
        str, Option(help="Effects between subjects: full, block, diagonal or isotropic.")
    ] = "full",
    effects_by_state: Annotated[
        bool, Option("--effects-by-state", help="Every state has effects of its own.")
    ] = False,
    state_names: StateNames = None,
    method: Annotated[
        str,
        Option(
            help="avem (one local pass per subject and iteration), adaptive (maximum likelihood, "
            "nodes where each subject's effects are), partial (some effects anchored, the others "
            "integrated), or one to compare with: mean_field, structured, quadrature, monte_carlo."
        ),
    ] = "avem",
    batch_size: Annotated[
        int | None,
        Option(
            metavar="N",
            help="With method avem, for many thousand subjects: update the parameters after every "
            "N of them, until they are near the solution.",
            show_default="all at once",
        ),
    ] = None,
    refine: Annotated[
        str,
        Option(
            help="Go on from AVEM's solution to maximum likelihood: auto (where anchoring does not "
            "hold), adaptive (always) or never."
        ),
    ] = "auto",
    q_update: Annotated[
        str, Option(help="Effects without a closed form: laplace or quadrature.")
    ] = "laplace",
    standard_errors: Annotated[
        bool,
        Option("--standard-errors", help="Also in the table of parameters: errors and intervals."),
    ] = False,
    starts: Annotated[int, Option(help="Starting points to try.")] = 8,
    seed: Seed = 0,
    max_iter: Annotated[int, Option(help="Most iterations.")] = 500,
    plain: Annotated[bool, Option("--plain", help="The paper's iteration to the letter.")] = False,
    memory: Annotated[
        str | None,
        Option(
            metavar="AMOUNT",
            help="Leave the table on disk, FILE may be a pattern such as 'logs/*.parquet', and use "
            "so much memory: 4GB.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        Option(
            metavar="ADDRESS", help="Of a Dask scheduler whose workers compute: tcp://host:8786."
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        PathOption(
            help="With --memory or --cluster: a folder to keep the sorted rows in, on a disk that "
            "all machines of a cluster see."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        PathOption(help="A file to go on from, should the fit be killed; written now and then."),
    ] = None,
    table_format: TableFormat = None,
    no_plots: NoPlots = False,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit a model to a table and write everything about it into a folder."""
    if formula is not None and "~" not in formula and Path(formula).is_file():
        raise ModelError(
            f"{formula!r} is a file, and a formula is wanted there. A pattern of several files "
            "needs quotes: 'folder/*.csv'."
        )
    if formula is not None and named_formula is not None:
        raise ModelError("The formula is there twice: as FORMULA and as --formula.")
    on_disk = memory is not None or cluster is not None
    if on_disk and missing_code:
        raise ModelError("--missing-code is for tables in memory; make these values empty first.")
    if on_disk and table_format is not None:
        raise ModelError(
            "--format is for tables in memory: of a table on disk, effects and states are folders "
            "of Parquet files, and parameters are parameters.csv."
        )
    if cache is not None and not on_disk:
        raise ModelError("--cache goes with --memory or --cluster: --memory 4GB.")
    ending = ".parquet" if on_disk else table_ending(file, table_format)
    if on_disk:
        check_scan_folder(out, force)
    else:
        check_folder(out, force, TABLES, PLOTS, ending)
    set_up_jax(no_cache)
    import avem
    from avem.inference.methods.names import method_with

    if duration is None and duration_formula != "~ 1":
        raise ModelError("--duration-formula goes with --duration: negative_binomial, say.")
    words = [] if duration is None else names_in(duration, "--duration")
    defaults = Defaults(family, covariance, trials, effects_by_state)
    model = avem.MixedHMM(
        read_outcomes(formula or named_formula, outcome or (), defaults),
        states,
        transition=_moves(transition, time_scale, moves, event, unit),
        initial=initial,
        effect_covariance=cast(Any, effect_covariance),  # the model checks words
        duration=avem.Duration(words if len(words) > 1 else words[0], duration_formula)
        if words
        else None,
        state_names=None if state_names is None else names_in(state_names, "--state-names"),
        time_scale=cast(Any, time_scale),
        known=known,
        constraints=constraint or None,
        priors=cast(Any, priors),
        n_clusters=clusters,
    )
    chosen: dict[str, Any] = {
        "method": method_with(method, {"q_update": q_update, "batch_size": batch_size}),
        "refine": None if refine == "never" else refine,
        "n_starts": starts,
        "max_iter": max_iter,
        "seed": seed,
        "plain": plain,
        "checkpoint": checkpoint,
    }
    counting: dict[str, Any] = {"weights": weights, "weights_kind": weights_kind}
    if on_disk:
        with cluster_at(cluster) as client:
            data = scan_for(model, str(file), (subject, time, sequence), memory, cache)
            fitted = model.fit(data, client=client, **chosen, **counting)
            finish_scan(fitted, out, standard_errors)
        return
    data = read_for(model, file, subject, time, sequence, missing_code or ())
    fitted = model.fit(data, subject, time, sequence, **chosen, **counting)
    plots = () if no_plots else PLOTS
    finish(fitted, data, out, plots, thorough=standard_errors, ending=ending)


def _moves(
    formula: str, time_scale: str, moves: str | None, event: str | None, unit: str | None
) -> Any:
    """What the options of continuous time say of the transitions."""
    import avem
    from avem.components.moves import WORDS

    given = given_options(moves=moves, event=event, unit=unit)
    if time_scale != "continuous" and (event is not None or unit is not None):
        word = "event" if event is not None else "unit"
        raise ModelError(f"--{word} goes with --time-scale continuous.")
    if moves is not None and moves not in WORDS:
        pairs = [
            tuple(_state(part) for part in pair.split("-")) for pair in names_in(moves, "--moves")
        ]
        wrong = [pair for pair in pairs if len(pair) != 2]
        if wrong:
            raise ModelError(f"--moves {moves!r} has {'-'.join(map(str, wrong[0]))!r}; write A-B.")
        given["moves"] = pairs
    if time_scale != "continuous":
        if given and formula != "~ 1":
            raise ModelError(
                "--moves and a formula of the transitions go together with --time-scale continuous "
                "alone. Leave one of them out."
            )
        return given.get("moves", formula)
    return avem.rates(formula, **given)


def _state(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text.strip()
