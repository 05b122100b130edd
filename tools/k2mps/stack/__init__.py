"""The series as commits in a checkout: applying, changing, exporting."""
