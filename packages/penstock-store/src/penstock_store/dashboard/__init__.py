"""What a person looks at: the dashboards, one process for all of them (`penstock dashboards`)."""
