"""The door for machines: results with a reward, populations of candidates, tools and tasks for agents.

`result` says what an evaluation comes to for a program, `api` is the package's public face, `population` judges many
candidates, `score` says what they come to, `mcp_server` has the tools, `harbor` the tasks. docs/agents.md is the page.
"""
