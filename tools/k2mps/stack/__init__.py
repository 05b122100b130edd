"""Applies the series as commits of a checkout, changes these commits, and exports them."""
