"""The build of a release, `make dist` (README.md). It is not part of the package."""
