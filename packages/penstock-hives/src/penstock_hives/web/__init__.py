"""The dashboard for businesses: its section, and the components that pages share."""
