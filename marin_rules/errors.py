"""The errors a person can act on. Each message names the step or file and the next thing to try."""


class MarinRulesError(Exception):
    """Something the user can fix; shown without a traceback."""


class PlanError(MarinRulesError, ValueError):
    """The steps cannot be planned: nothing has started and nothing was written."""


class ExperimentError(MarinRulesError):
    """The experiment file is missing, fails while it is executed, or hands over no steps."""


class SettingsError(MarinRulesError, ValueError):
    """A flag or configuration key is unknown or has a value that cannot be used."""
