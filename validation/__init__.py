"""Comparison with public measurements, and the fit of the priors that the package ships."""
