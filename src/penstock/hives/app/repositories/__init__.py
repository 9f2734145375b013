"""Where the SQL is. A repository is made over a connection, so that what belongs together is one
transaction; it gives and takes values of the domain and knows no rules."""
