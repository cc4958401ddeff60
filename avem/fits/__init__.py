"""What the user holds after a fit."""
