"""Pages for people: what they are made of, and under which headers. Pure: hands out bytes, and serves nothing.

`ui/` is markup, one style and the scripts of the pages; `verify/` is the verifier in JavaScript, which knows no page.
Nothing here knows a policy, a key or a caller: what a page shows it is given, or asks the public endpoints for.
"""
