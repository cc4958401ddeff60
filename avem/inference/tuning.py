"""Numbers of the iteration and of the methods that were chosen by trial, and why.

None of them changes where a fit ends by more than its tolerance, unless it says so.
"""

# --- when to stop -------------------------------------------------------------------------------

HMM_TOL, SSM_TOL = 1e-6, 1e-5
"""Last change of any parameter. State-space models have flatter likelihoods, and the sixth digit
takes them as long as the others together."""
PLAIN_TOL = 1e-4
"""Relative change of the anchored log likelihood, as in the paper's scripts."""
BATCH_TOL = 1e-4
"""With batches: for so many subjects that standard errors are far larger."""
TOL_OF_DRAWS, FLAT_WITH_DRAWS = 2e-4, 0.03
"""With draws: tolerance, and the change of the log likelihood that is no more than their error."""
NOISY_BLOCK = 10
"""Iterations whose mean is compared with that of as many before, where every one has noise."""
PLATEAU = 8
"""Iterations over which the objective is flat."""
PATIENCE = 25
"""Iterations in a row that may be further below the best bound before the fit gives up."""

# --- the accelerated iteration ------------------------------------------------------------------

NEGLIGIBLE_RISE = 1e-7
"""Rise of log p(D, f) by better modes, relative to the bound, that changes no parameter."""
ANCHOR_SHARE = 0.01
"""How much the anchors' moves (root mean square) count beside the largest move of a parameter."""
STILL = 1e-8
"""How far anchors may be from where they lead (root mean square) when a fit is done. Where all
parameters are held, the iteration ends before those of single subjects have arrived."""
LOOSE = 1e-3
"""Convergence that is good enough to look for better modes: before, subjects still change modes."""
SEARCHED = 1e-2
"""A change of the parameters, on the scale of the fit, that brings no subject's modes in another
order, but for those that are hardly lower than the best."""
CATCH_UP = 0.1
"""How far the anchors may lag behind, as a share of the last move of the parameters. Less costs
local passes; more, and the extrapolation sees moves that are the anchors' alone."""
SLACK, SLACK_AT_END, NEAR_END = 1e-6, 0.02, 3e-3
"""How much a leap may lower the bound: far from the solution, and once theta changes by less than
the third number, where a solution with the mean anchor may lie below the highest bound."""
LENIENT = 0.05
"""How much leaps may lower a likelihood in all, in log units."""
NEAR = 1e-3
"""How near its solution AVEM comes before another method takes over."""
HMM_E_STEPS, HMM_M_STEPS = 4, 1
"""Newton steps within an iteration: the next iteration goes on from there anyway."""
HARMLESS_PER_CELL = 1e-3
"""How far, per observed cell, the anchored solution of a state-space model may lie below the
highest bound on the way to it."""

# --- starts -------------------------------------------------------------------------------------

START_CELLS = 100_000
"""Starts are compared on about this many cells; more would not change which one wins."""
SAME_PLACE = 0.1
"""A start within this distance of where another one ended, in every parameter, ends there too."""
BETTER = 0.1
"""A rise of the bound that makes another solution worth having."""
AFTER_ANCHORS = 15
"""Iterations with nodes that tell whether an anchored start comes to where another one is."""
LATER_ITER = 20
"""Iterations of the third and further starts before they are ranked by the likelihood."""
FINALS, FINALISTS = ((10.0, 2e-4, 100), (2.0, 1e-5, 300)), 4
"""Starts this close to the best, in log likelihood, are followed to this tolerance, or for so many
iterations, unless there is but one: where states overlap, the last units come slowly."""
AGREE = 1.0
"""Starts whose bounds are this close (in log likelihood units) found the same solution."""
CONVINCED = 4
"""When so many first starts all found the same solution, no others are tried."""
WILD = 30.0
"""Values this many standard deviations from the middle are those of states that grow."""
SMALL_EFFECT, LARGE_EFFECT = 0.02, 0.25
"""Least and largest variance of an effect at the start of a state-space model, relative to the
mean square of its kind."""

BIAS = 0.1
"""What anchoring may change, in standard errors, where the fit leaves it at that."""

# --- nodes and draws ----------------------------------------------------------------------------

PRIOR_NODES, PRIOR_DRAWS = 9, 100
"""The paper's: Gauss-Hermite nodes per effect, and draws."""
MOST_PRIOR_NODES = 20_000
"""A grid of more takes hours where other methods take minutes."""
LADDER = {0: (1,), 1: (3, 7, 15, 31, 61), 2: (3, 5, 9, 15), 3: (3, 5, 9)}
"""Gauss-Hermite nodes per effect, from few to many; with more effects, draws at the top."""
FINE = {1: 31, 2: 81, 3: 125}
"""Nodes that stand for a posterior in predictions; above, those of the last rule."""
MOST_ON_AXES = 6
"""Effects above which nodes on a few axes lie too far out: there are draws alone."""
FEW_CELLS = 250_000
"""Cells times nodes of an E-step that takes no longer than a hundredth of compiling another one."""
ENOUGH, GROWTH = 0.005, 0.75
"""What may be wrong with the log likelihood of a hundred subjects together before nodes are added,
and the power of their number with which it grows. For a million subjects that is 5, and moves
estimates by some 0.005 standard errors."""
ADAPTIVE_DRAWS = 256
BETWEEN = 1.3
"""How much wider than the posterior near them the variances of several centres are, so that their
mixture covers what lies between them."""
STRUCTURED_NODES, STRUCTURED_DRAWS = {1: 9, 2: 5, 3: 5}, 64
NARROW = 0.25
"""Partial anchoring: share of the variance with known states that is added to the posterior's, so
that nodes never stand too close together to find their way back."""
