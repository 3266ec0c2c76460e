"""Records as files and tables: JSON lines, CSV, Parquet, pandas; a bounded number of records in memory."""

from fairlane.export.extras import MissingExtra
from fairlane.export.files import whole_bytes, whole_file
from fairlane.export.formats import FORMATS, Format, UnknownFormat, export_records, format_of, write_records
from fairlane.export.frame import to_frame
from fairlane.export.lines import record_line, written

__all__ = [
    "FORMATS",
    "Format",
    "MissingExtra",
    "UnknownFormat",
    "export_records",
    "format_of",
    "record_line",
    "to_frame",
    "whole_bytes",
    "whole_file",
    "write_records",
    "written",
]
