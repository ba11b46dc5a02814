"""What a problem and a submission are, and the files that they are read from: shape files, token files, the first lines
of a submission. Also writes files: a new problem (skeleton), one file out of several (merge). Runs neither.
"""
