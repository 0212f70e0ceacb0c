"""`issuer verify FILE`: judge one file, and write its reports."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from issuer import files
from issuer.cli.terminal import printable, say, say_error, say_whole, to_json
from issuer.cli.verify_forms import Form, joined
from issuer.errors import InputError
from issuer.formats import strict_yaml
from issuer.relying.badge_picture import shields, svg
from issuer.relying.verifier import Verifier
from issuer.verify.report import Report
from issuer.verify.summary import Summary, tally


def verify_file(
    file: Path, repo: str, place: str, verifier: Verifier, form: Form, badges: Path | None = None
) -> Summary:
    """Judge a file at `place` in the repository `repo`, print its reports in this form, and return the counts. The
    badges of its entries go to the folder `badges`.

    Raises InputError for a file that is none of results, which a form that is one document tells, too.
    """
    now, out = verifier.context.now, joined(form, say_whole)
    if form.alone is None:
        say_whole(form.head)
    try:
        reports = verifier.verify(files.read(file, strict_yaml.MAX_BYTES), str(file), repo, place)
        if form.alone is None:
            out(form.writer.reports(str(file), reports))
        else:
            form.alone(str(file), reports, now)
            _tell_receipts(reports, verifier)
        if badges is not None:
            _draw(reports, badges, file.stem)
    except InputError as error:
        if form.alone is None:
            out(form.writer.finding(error) + form.foot(Summary(), verifier.trust, now))
        raise
    # Where anything else ends this, a document without its foot is one that nobody takes for "nothing found".
    if form.alone is None:
        say_whole(form.foot(Summary(), verifier.trust, now))
    faults = verifier.take_faults()
    for fault in faults:
        say_error(fault)
    summary = Summary()
    summary.add(1, Counter(map(tally, reports)).items(), [fault.code for fault in faults])
    return summary


def _draw(reports: tuple[Report, ...], folder: Path, stem: str) -> None:
    files.make_folder(folder, mode=0o777, follow=False)
    for report in reports:
        name = f"{stem}-{report.pointer.removeprefix('/')}"
        for kind, text in (("svg", svg(report)), ("json", to_json(shields(report)) + "\n")):
            files.replace(folder / f"{name}.{kind}", text.encode(), mode=None, durable=False, follow=False)


def _tell_receipts(reports: tuple[Report, ...], verifier: Verifier) -> None:
    """Say where the receipts lie with which these entries stay verified."""
    if verifier.receipts is None or verifier.receipt_key is None:
        return
    for report in reports:
        if report.verdict == "verified" and report.token_digest in verifier.receipts:
            path = printable(str(verifier.receipts.path_of(report.token_digest)))
            say(f"the receipt of entry {report.pointer.removeprefix('/')}: {path}", err=True)
