"""How we log in elsewhere: find out where, become known there, get tokens, keep them, and get new ones.

Everything that is fetched goes through a `Fetch` that guards itself, since a server's word is what sends us there.
"""
