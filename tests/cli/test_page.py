"""`issuer page export`: a folder that any host can serve."""

import re
from pathlib import Path

from issuer.page.site import export
from tests.support.in_process import run


def test_the_page_is_a_folder_that_is_whole_and_may_be_written_again(tmp_path: Path) -> None:
    first, done = (run(["page", "export", "site"], tmp_path) for _ in range(2))
    assert first == done
    assert (done.code, done.err) == (0, "")
    written = {str(path.relative_to(tmp_path / "site")): path.read_bytes() for path in (tmp_path / "site").rglob("*.*")}
    assert written == export()
    page = written["index.html"].decode()
    for name in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert name in written
    assert 'data-issuer=""' in page
    assert "<nav" not in page
    assert f"files {len(written)}" in done.out
    assert "frame-ancestors 'none'" in done.out


def test_a_link_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "site" / "static").symlink_to(tmp_path / "other")
    assert run(["page", "export", "site"], tmp_path).code == 6
    assert not list((tmp_path / "other").iterdir())
