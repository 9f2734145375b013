"""What anybody may see, answered without the database.

An *edition* is all of it at one moment: the refresher makes one a minute, or takes over the one
another worker made. A *window* shows the latest, with live figures put in as they are heard, and
renders answers; the *fast path* hands them out. However many ask, the database hears of one edition
a minute from all workers together.
"""
