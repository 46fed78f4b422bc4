"""What ten minutes of measuring teach about a board and its host: a small profile, and what it does to predictions."""
