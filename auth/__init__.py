"""Who may call us, and how we log in elsewhere.

Tokens are verified and obtained here; which actor acts for which principal is decided in `greenroom.actors`.
"""
