"""The dashboards of all applications in one process (`penstock dashboards`)."""
