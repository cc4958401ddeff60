"""Pictures of a fit."""
class Plots:
    def __init__(self, fit): self._fit = fit
