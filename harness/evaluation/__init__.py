"""One evaluation and what is made of several: evaluate, compare, verify, rejudge. Knows no kind of problem."""
