"""`penstock up`: a supervisor of all parts on one machine, and the panel that shows them."""
