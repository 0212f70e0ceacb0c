"""The times and caps of `service/signing`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# -- the hosts that share a store --------------------------------------------------------------------------------------

# A host that has not been heard of for this long is not waited for. Each says what it publishes at every change, and
# this often: three times in a row's life, so that one that lives is there although two of its calls fail.
HOST_S = 60
HOST_AGAIN_S = 20

# -- the key set -------------------------------------------------------------------------------------------------------

# For how long a cache may use the key set, and for how much longer where it cannot be fetched. Only when both have
# passed has everybody a set with a new key: it does not sign before.
KEY_SET_AGE_S = 300
KEY_SET_STALE_S = 600
PUBLISHED_S = KEY_SET_AGE_S + KEY_SET_STALE_S
# How long after a key began its last token one that it signed may be good: the longest life of a token, and a minute
# for the clocks of those who judge it.
LAST_TOKEN_S = 86_400 + 60
# How many keys may ever sign: verifiers read an archive of so many (verify/trust.py). From when on the commands say
# how few are left.
MAX_SIGNED_KEYS = 1024
FEW_KEYS_LEFT = 64
# How far behind the last line of the history of the keys a clock may be: hosts differ a little. Beyond it, it is wrong.
CLOCK_BACK_S = 60
# How long anybody waits for its turn to write there: whoever writes is done within a second, unless it is stopped.
HISTORY_TURN_S = 10.0

# -- keys that lie elsewhere -------------------------------------------------------------------------------------------

# From when a signature is asked for, its turn in the threads included, to when it has been verified; and for all of a
# batch, which takes its turn with everybody else.
SIGNER_S = 1.0
SIGNED_S = 4.0
# What has waited for its turn for so long is not asked for any more. Where more is wanted than a key signs, everybody
# would be begun just before the end of their time, and be late.
SIGNER_TURN_S = 0.7
# How many signatures of one key are asked for at once: a call costs a millisecond of CPU or two, so that with 10 ms for
# each more would only wait for this process. The driver of a PKCS #11 module takes one.
SIGNER_CALLS = 3
# A message that AWS KMS signs as it is (MessageType RAW).
KMS_MESSAGE_BYTES = 4096
# Readiness signs where nobody has for so long.
SIGNER_CHECK_S = 60.0
# At the start of a process: until a key has been opened and has proved itself. One that could not is tried again so
# often: a wrong PIN, too, is a try that a token counts.
SIGNER_START_S = 5.0
SIGNER_AGAIN_S = 10.0
# The YAML file of a key, and the file of a PIN.
MAX_KEY_FILE_BYTES = 16 * 1024
MAX_PIN_FILE_BYTES = 1024

# -- policies and keys -------------------------------------------------------------------------------------------------

# How long a look at the keys waits for their history, whose lock a stopped process may hold: the next look, which may
# find a stolen key gone, must not. A change of the signing key is in every worker this long after its first token.
HISTORY_S = 0.5
ROTATED_S = 4.0
