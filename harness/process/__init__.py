"""Child processes that are not trusted: starting, confining and ending them, and the caches that outlive them. Knows
no ranks and no problems."""
