"""What an evaluation result is: run claims, entries of result files, and their canonical forms. Pure."""
