"""What avem raises and warns with: catch `AvemError` to catch them all."""


class AvemError(Exception):
    """Anything avem refuses to do."""


class DataError(AvemError, ValueError):
    """The data cannot be used as they are."""


class ModelError(AvemError, ValueError):
    """The model specification, a formula or an argument makes no sense."""


class FileError(AvemError, ValueError):
    """A file is not what avem wrote, or cannot be read."""


class AvemWarning(UserWarning):
    """Something worth a look that does not stop the work."""
