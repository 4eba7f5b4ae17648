"""ScratchDirectory: where tables that do not fit memory lie, in files without names."""

import shutil
from pathlib import Path

from siafu.base.errors import NoSpace
from siafu.base.hardware.memory import rounded_up
from siafu.base.storage.absent import refuse_absent_directory
from siafu.base.storage.files import disk_errors, scratch_file
from siafu.tables.disk_traffic import DiskTraffic
from siafu.tables.page_file import DiskCalls, PageFile, SystemCalls


class ScratchDirectory:
    """Makes scratch files and counts their traffic. The system frees them when the process ends, even if it is killed."""

    def __init__(self, path: Path, calls: DiskCalls | None = None) -> None:
        refuse_absent_directory(path)
        self.path, self.traffic = path, DiskTraffic()
        self._calls = calls or SystemCalls()

    @property
    def free(self) -> int:
        """Bytes that the disk has left."""
        return shutil.disk_usage(self.path).free

    def refuse_more_than_free(self, size: int) -> None:
        """Refuse files of `size` bytes in all where the disk has less, before any is made."""
        free = self.free
        if size > free:
            raise NoSpace(
                f"{self.path} has {free / 1e9:,.2f} GB free, and scratch files need {rounded_up(size)}: "
                "free some, or choose another --scratch"
            )

    def file(self, size: int) -> PageFile:
        """A new file of that size, whose space is taken now."""
        self.refuse_more_than_free(size)
        with disk_errors(self.path):
            file = scratch_file(self.path)
        try:
            return PageFile(file, self.path, size, self.traffic, self._calls)
        except BaseException:
            file.close()
            raise
