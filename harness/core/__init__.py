"""What every other package may use: records, decoding, statistics, words, files. Knows no process, no problem and
no package of the harness."""
