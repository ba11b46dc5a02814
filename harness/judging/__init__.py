"""Pure rules over what was measured: right or wrong, passed or failed, scores, warnings. Starts no process and reads
no file."""
