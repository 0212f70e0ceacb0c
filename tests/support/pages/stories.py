"""Which page is run in which world."""

from tests.support.pages import (
    contract_page,
    deploy_pages,
    framework_pages,
    front_page,
    host_page,
    keys_page,
    log_page,
    policies_page,
    relying_pages,
)

STORIES = tuple(
    story
    for module in (
        front_page,
        policies_page,
        keys_page,
        relying_pages,
        framework_pages,
        contract_page,
        deploy_pages,
        host_page,
        log_page,
    )
    for story in module.STORIES
)
