"""What a process does: the shapes that most processes take, and the calls that all of them share."""
