"""Untrusted child processes: starting and confining them, and the compile caches that outlive them. Knows no ranks and
no problems."""
