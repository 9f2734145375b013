"""Jobs over HTTP, so that a website in any language can ask for them: `penstock job api`."""
