"""What k2 relies on in torch for macOS: read from its wheel, and compared with known facts."""
