"""The table of op rules against torch: every op cut in every legal way, and what would be right but is refused."""
