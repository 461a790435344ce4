"""Who may call us, and how we log in elsewhere.

Tokens are verified and obtained here; which actor acts for which principal is decided in `greenroom.actors`. The room is empty
until its first part moves in.
"""
