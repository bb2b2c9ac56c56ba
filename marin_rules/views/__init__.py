"""Views: plans and states as people see them. They only read."""
