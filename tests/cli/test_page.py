"""`issuer page export`: a folder that any host can serve."""

import re
import shutil
from pathlib import Path

from issuer.page.site import export
from tests.support.in_process import run


def test_the_page_is_a_folder_that_is_whole_and_may_be_written_again(tmp_path: Path) -> None:
    first, done = (run(["page", "export", "site"], tmp_path) for _ in range(2))
    assert first == done
    assert (done.code, done.err) == (0, "")
    site, other = tmp_path / "site", tmp_path / "other"
    written = {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*.*")}
    assert written == export()
    page = written["index.html"].decode()
    assert set(re.findall(r'(?:src|href)="([^"#]+)"', page)) <= written.keys()
    assert ('data-issuer=""' in page, "<nav" in page) == (True, False)
    assert (f"files {len(written)}" in done.out, "frame-ancestors 'none'" in done.out) == (True, True)
    shutil.rmtree(site)
    other.mkdir()
    site.mkdir()
    (site / "static").symlink_to(other)
    assert run(["page", "export", "site"], tmp_path).code == 6, "no link is followed out of the folder"
    assert not list(other.iterdir())
