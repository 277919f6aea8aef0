"""The examples of `docs/pages/examples/` and the Dockerfile: each is read by what reads it, and run."""
