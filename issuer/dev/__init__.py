"""What a newcomer's machine lacks: a local OIDC provider and sample runs. Never imported by the service."""
