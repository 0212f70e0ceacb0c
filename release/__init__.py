"""What is released, and how: `make dist` (README.md). No part of the package."""
