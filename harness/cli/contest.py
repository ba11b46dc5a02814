"""Run a contest: teams register and submit within its rules, organisers freeze, verify, award and
disqualify. A contest is a yaml file (docs/contest.md), with its audit log beside it; KernelBot's competition files are
contests too. All times are UTC."""

from harness.cli import contest_settle, contest_submit, contest_verbs
from harness.cli.declare import SubVerb

SUB_VERBS = {
    "list": SubVerb("the contests that there are", contest_verbs.show_list),
    "show": SubVerb("a contest's rules and teams, one entry's history, or the whole audit log", contest_verbs.show),
    "register": SubVerb("register a team, or further members of one", contest_verbs.register),
    "submit": SubVerb("evaluate a submission and enter it", contest_submit.submit),
    "withdraw": SubVerb("take an entry of one's own team back", contest_verbs.withdraw),
    "standings": SubVerb("who stands where", contest_verbs.show_standings),
    "stats": SubVerb("submissions, best results and failures over time", contest_verbs.show_stats),
    "freeze": SubVerb("keep the public standings as they are now", contest_verbs.freeze),
    "unfreeze": SubVerb("let the public standings follow again", contest_verbs.unfreeze),
    "verify-top": SubVerb(
        "run the leading entries of a problem again: do they reproduce what they claim", contest_verbs.verify_top
    ),
    "settle": SubVerb(
        "run the best sources of a problem's leading teams head to head, for places that they share",
        contest_settle.settle,
    ),
    "review": SubVerb(
        "say that an organiser has read a reproduced entry's source: it is verified then", contest_verbs.review
    ),
    "award": SubVerb("give a verified entry an award", contest_verbs.award),
    "disqualify": SubVerb("take an entry out, for a reason", contest_verbs.disqualify),
    "reinstate": SubVerb("take a disqualification back, for a reason", contest_verbs.reinstate),
}
