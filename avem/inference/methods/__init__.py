"""Inference methods: where the local passes are run, and how they are weighed; one file each."""
