"""The witnesses of the log: how each is asked, and when enough of them have cosigned."""
