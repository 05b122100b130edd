"""Makes wheels of the patched k2, verifies them, and lists them on a page."""
