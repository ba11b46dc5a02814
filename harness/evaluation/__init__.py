"""One evaluation and what is made of several: evaluate, compare, settle, verify, reproduce, rejudge, MLPerf's scores.
Knows no kind of problem.
"""
