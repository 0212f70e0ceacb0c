"""Who is calling: one file a kind of credential, each an `issue.Authenticator`, and the keys that they verify under."""
