"""The federation: connections to many servers, each under a supervisor of its own, offered as one catalogue of tools."""
