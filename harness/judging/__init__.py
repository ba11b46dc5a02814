"""Pure rules over what was measured: verdicts, figures, scores, warnings. Starts no process and reads no file."""
