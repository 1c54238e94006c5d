"""Many rows, judged by one judge into one results file that survives whatever happens to the process."""
