"""What a fit says of values not seen."""
