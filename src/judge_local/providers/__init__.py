"""Providers: what answers a request. `base` is the contract; the other modules keep it, one engine each."""
