"""Times and caps of `service/signing`, each with the reason for its value."""

from __future__ import annotations

# -- the hosts that share a store --------------------------------------------------------------------------------------

# Each host writes which keys it publishes at every change and every HOST_AGAIN_S. After HOST_S without such a row, the
# other hosts stop waiting for it. In that time a living host makes three calls, and two of them may fail.
HOST_S = 60
HOST_AGAIN_S = 20

# -- the key set -------------------------------------------------------------------------------------------------------

# How long a cache may use the key set, and how much longer if it cannot fetch a new one. A new key signs only when both
# have passed: by then every cached key set has it.
KEY_SET_AGE_S = 300
KEY_SET_STALE_S = 600
PUBLISHED_S = KEY_SET_AGE_S + KEY_SET_STALE_S
# The longest time from when a key begins a token until no relying party accepts that token: the longest life of a
# token, and a minute for the clocks of relying parties.
LAST_TOKEN_S = 86_400 + 60
# How many keys may ever sign: relying parties read no larger archive (verify/trust.py). From FEW_KEYS_LEFT on, the
# commands report how many are left.
MAX_SIGNED_KEYS = 1024
FEW_KEYS_LEFT = 64
# How far the clock may be behind the last line of the key history: the clocks of hosts differ a little. A clock further
# behind is wrong.
CLOCK_BACK_S = 60
# How long a process waits for its turn to write the key history: a writer needs under a second, unless it is stopped.
HISTORY_TURN_S = 10.0

# -- keys in a token or a KMS ------------------------------------------------------------------------------------------

# The time limit for one signature, from the request until it is verified, including the wait for a thread; and the
# limit for a whole batch, which shares the threads with all other requests.
SIGNER_S = 1.0
SIGNED_S = 4.0
# A signature that has waited this long for a thread is given up. Otherwise, with more requests than the key can sign,
# every request would begin just before its deadline and miss it.
SIGNER_TURN_S = 0.7
# How many signatures of one key may be under way at once. A call costs one or two milliseconds of CPU and takes about
# 10 ms, so more calls would only wait for this process. The driver of a PKCS #11 module takes one call at a time.
SIGNER_CALLS = 3
# The longest message that AWS KMS signs without a digest (MessageType RAW).
KMS_MESSAGE_BYTES = 4096
# A key signs a probe before a token or readiness relies on it, if it has signed nothing for SIGNER_CHECK_S or its last
# signature failed. The failure of a probe counts for SIGNER_PROBE_S: each probe costs a call and the backend's time.
SIGNER_CHECK_S = 60.0
SIGNER_PROBE_S = 5.0
# How long a starting process waits until a key is open and has proved itself; and the pause before the next try to open
# it, because a token counts each wrong PIN.
SIGNER_START_S = 5.0
SIGNER_AGAIN_S = 10.0
# The YAML file of a key, and the file of a PIN.
MAX_KEY_FILE_BYTES = 16 * 1024
MAX_PIN_FILE_BYTES = 1024

# -- following the keys ------------------------------------------------------------------------------------------------

# How long a look at the keys waits for their history, because a stopped process may hold its lock. The wait is short,
# because the next look may find that a stolen key is gone.
HISTORY_S = 0.5
# A change of the signing key has reached every worker this long after the new key's first token.
ROTATED_S = 4.0

# -- the inventory -----------------------------------------------------------------------------------------------------

# A few names take less.
MAX_INVENTORY_BYTES = 4 * 1024
