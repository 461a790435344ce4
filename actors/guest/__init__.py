"""Thespian programs as users, both ways: guests who ask our servers, and their actors as tools of ours."""
