"""A small witness for anyone's logs (c2sp.org/tlog-witness): it cosigns what extends what it has cosigned before."""
