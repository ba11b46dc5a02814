"""What a problem and a submission are, and the files that they are read from. Runs neither."""
