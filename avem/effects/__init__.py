"""The random effects: their prior N(0, Sigma) and the Gaussian q_i of each subject."""
