"""OAuth client: metadata discovery, client registration, token requests, token storage and refresh.

Every URL is fetched through a guarded `FetchFunction`, since the addresses come from servers that are not trusted.
"""
