"""A running service is scraped: its counts are exact over its workers, over their deaths, and names no stranger."""

import time

import httpx
import pytest

from tests.support.http_load import drive, request
from tests.support.running import Running, singles
from tests.support.scraping import scraped, total
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


def test_under_load_two_workers_count_exactly_what_was_sent(live: Running) -> None:
    before = scraped(live)
    good, asked = singles(live, "RS256", 300), singles(live, "RS256", 100, "/tokens/explain")
    bad = [request("/tokens", "nonsense", b"{}")] * 200
    lost = [request(f"/nowhere/{number}", "x", b"") for number in range(50)]
    mixed = [each for group in zip(*[iter(good + asked + bad + lost)] * 5, strict=True) for each in group]
    statuses = drive(live.settings.listen.port, mixed, 16).statuses
    assert statuses == {201: 300, 200: 100, 401: 200, 404: 50}
    after = scraped(live)

    def risen(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    requests = "issuer_requests_total"
    assert risen(requests, endpoint="/tokens", outcome="issued", code="ok", integration="inspect-ai") == 300
    assert risen(requests, endpoint="/tokens/explain", outcome="explained", integration="inspect-ai") == 100
    assert risen(requests, endpoint="/tokens", code="identity.malformed", integration="-") == 200
    assert risen(requests, endpoint="other", code="request.not_found", integration="-") == 50
    assert risen(requests) == risen("issuer_http_requests_total") == 650
    assert risen("issuer_request_duration_seconds_count", endpoint="/tokens") == 500
    assert risen("issuer_admission_duration_seconds_count") == 400
    assert risen("issuer_signing_duration_seconds_count") == 300
    assert risen("issuer_log_append_duration_seconds_count") == 0, "the service has no log"
    assert 0 < risen("issuer_request_duration_seconds_sum") < 60


def test_how_the_service_is(live: Running) -> None:
    live.post(live.token())
    found = scraped(live)
    ready = live.http.get("/health/ready").json()
    assert total(found, "issuer_policies_info", digest=ready["policies"]["digest"]) == 1
    assert total(found, "issuer_policies_loaded_timestamp_seconds") == pytest.approx(
        ready["policies"]["loaded_at"], abs=2
    )
    assert total(found, "issuer_integrations") == 2
    assert total(found, "issuer_workers_expected") == 2
    assert total(found, "issuer_worker_starts_total") >= 2
    assert total(found, "issuer_store_up") == total(found, "issuer_store_role_info", role="master") == 1
    (kid,) = (key["kid"] for key in live.http.get("/.well-known/jwks.json").json()["keys"])
    assert total(found, "issuer_signing_key_since_timestamp_seconds", kid=kid, state="active") > 1_700_000_000
    assert total(found, "issuer_store_epoch_timestamp_seconds") > 1_700_000_000
    assert total(found, "issuer_provider_fetches_total", provider="github-actions", outcome="answered") >= 1
    assert total(found, "issuer_event_loop_lag_seconds_count") > 1
    assert total(found, "issuer_data_free_bytes") > 1_000_000
    eventually(lambda: time.time() - total(scraped(live), "issuer_backup_timestamp_seconds") < 600)
    assert not total(found, "issuer_audit_fails")
    assert not total(found, "issuer_policies_stale")


def test_the_public_port_has_no_metrics_and_the_other_nothing_else(live: Running) -> None:
    assert live.http.get("/metrics").status_code == 404
    own = f"http://127.0.0.1:{live.settings.metrics.port}"
    for path in ("/ui", "/health/ready", "/tokens", "/metricsx", "/metrics/x"):
        assert httpx.get(own + path).status_code == 404, path
    assert httpx.post(f"{own}/metrics").status_code == 501
