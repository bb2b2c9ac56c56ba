"""What the library complains of."""


class DrmaaException(Exception):
    pass


class AlreadyActiveSessionException(DrmaaException):
    pass


class DeniedByDrmException(DrmaaException):
    pass


class InternalException(DrmaaException):
    pass


class InvalidAttributeValueException(DrmaaException, AttributeError):
    pass
