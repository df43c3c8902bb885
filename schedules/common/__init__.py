"""What schedules of all targets share."""
