"""Pages for people: what they are made of, and under which headers. Pure: hands out bytes, and serves nothing."""
