"""What processes of our own cost: to start one, to lose one, to keep one; and what Thespian takes where it is asked."""
