"""Run a contest: teams register and submit within its rules, organisers freeze, verify, award and
disqualify. A contest is a yaml file (docs/contest.md), with its audit log beside it; KernelBot's competition files are
contests too. All times are UTC."""

from harness.cli import contest_settle, contest_submit, contest_verbs

SUB_VERBS = {
    "list": contest_verbs.show_list,
    "show": contest_verbs.show,
    "register": contest_verbs.register,
    "submit": contest_submit.submit,
    "withdraw": contest_verbs.withdraw,
    "standings": contest_verbs.show_standings,
    "stats": contest_verbs.show_stats,
    "freeze": contest_verbs.freeze,
    "unfreeze": contest_verbs.unfreeze,
    "verify-top": contest_verbs.verify_top,
    "settle": contest_settle.settle,
    "review": contest_verbs.review,
    "award": contest_verbs.award,
    "disqualify": contest_verbs.disqualify,
    "reinstate": contest_verbs.reinstate,
}
