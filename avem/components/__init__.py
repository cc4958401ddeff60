"""The parts a model is made of: each knows everything about itself, one file each."""
