"""Models on disk: what may be named, where it lands, how it is fetched, and what this machine can carry."""
