"""What states and actions are called."""


class JobState:
    UNDETERMINED = "undetermined"
    QUEUED_ACTIVE = "queued_active"
    SYSTEM_ON_HOLD = "system_on_hold"
    USER_ON_HOLD = "user_on_hold"
    RUNNING = "running"
    SYSTEM_SUSPENDED = "system_suspended"
    USER_SUSPENDED = "user_suspended"
    DONE = "done"
    FAILED = "failed"


class JobControlAction:
    TERMINATE = "terminate"
