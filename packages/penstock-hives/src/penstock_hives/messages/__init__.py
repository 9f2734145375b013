"""Messages between users and businesses: feedback, questions, answers, notices."""
