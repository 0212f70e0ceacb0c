"""Which page is run in which world."""

from tests.support.pages import (
    deploy_pages,
    framework_pages,
    host_page,
    keys_page,
    log_page,
    policies_page,
    relying_pages,
)

_PAGES = framework_pages, policies_page, keys_page, relying_pages, deploy_pages, host_page, log_page
STORIES = tuple(story for module in _PAGES for story in module.STORIES)
