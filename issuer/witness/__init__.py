"""A small witness for transparency logs (c2sp.org/tlog-witness): it cosigns checkpoints that extend the last one."""
