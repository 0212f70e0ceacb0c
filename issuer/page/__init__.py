"""The pages for people, as bytes with their headers. Pure: other packages serve them."""
