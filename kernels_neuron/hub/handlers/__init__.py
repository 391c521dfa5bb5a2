"""What the registry answers, one noun a file: functions from a Call to a Response, gathered in server.ROUTES."""
