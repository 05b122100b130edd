"""patches/ as text: reading it, checking it; needs no checkout."""
