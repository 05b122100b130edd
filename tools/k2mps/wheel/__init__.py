"""Wheels: making, verifying, comparing and describing them."""
