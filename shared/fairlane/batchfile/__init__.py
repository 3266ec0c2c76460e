"""Files of the OpenAI Batch API: requests in, one a line; answers and errors out, in the same order."""

from fairlane.batchfile.reading import REQUEST_FIELD, BatchFileError, check_batch, read_batch
from fairlane.batchfile.writing import BatchWriter, Written, check_place, default_errors

__all__ = [
    "REQUEST_FIELD",
    "BatchFileError",
    "BatchWriter",
    "Written",
    "check_batch",
    "check_place",
    "default_errors",
    "read_batch",
]
