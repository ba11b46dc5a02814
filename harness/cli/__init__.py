"""The command line: one module a verb. argparse is used in no other package."""
