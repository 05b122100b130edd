"""Makes small changes of the code, and checks that a test notices each change."""
