"""From steps and settings to a frozen plan: the plan's file, and what is packed into it."""
