"""The client of the log's witnesses: requests to each of them, and rounds until a quorum has cosigned."""
