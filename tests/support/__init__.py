"""The tests' harness: real services, providers, stores and clocks, good claims and tokens to break. Not tests itself."""
