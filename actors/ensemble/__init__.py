"""One company on several nodes, each with its own sessions: whichever node a request reaches, it is answered by the one where its session lives."""
