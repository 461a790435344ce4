"""Who runs, who watches, who restarts: OTP's supervision design, knowing nothing of MCP."""
