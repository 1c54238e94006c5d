"""Measuring: how fast judging is on this machine, how near its own limit, and how it compares with others on the same rows."""
