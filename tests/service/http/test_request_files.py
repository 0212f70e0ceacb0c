"""How many files a reader opens to follow one `POST /tokens`."""

from pathlib import Path

from tests.support.request_files import files_of_request

# Before the rooms were named the request passed through 66 files, and through 91 with the log.
MOST, MOST_WITH_LOG = 49, 65


def test_one_request_passes_through_few_files(tmp_path: Path) -> None:
    for has_log, most in ((False, MOST), (True, MOST_WITH_LOG)):
        files = files_of_request(tmp_path / str(has_log), has_log=has_log)
        assert {"issuance/issue.py", "service/http/tokens.py"} <= set(files)
        assert any("sequencer" in name for name in files) == has_log
        assert len(files) <= most, files
