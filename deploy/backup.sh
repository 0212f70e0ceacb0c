#!/bin/sh
# backup.sh DATA DIR [POLICIES]: copies to DIR the files of a service's `data` that must not be lost, while the service
# runs. It also copies the emergency stops in the folder of policies, which are in no repository.
#
# The service appends to a file or replaces it in one step, so a copy never has half a change. Only the last line of a
# growing audit file may be incomplete, which `issuer audit verify` reports. The copy of the log's tree continues from the
# previous copy. Not copied: the records of the log and the store of limits, which must not be restored from a backup
# (STATE.md), and keys, which have a separate backup (keys/README.md).
set -eu
umask 077
data=$1 target=$2 policies=${3:-}

# A loss of data must not destroy the last copy: these files are never removed.
for name in key-history.jsonl pats policies revocations.jsonl revocations.jwt revocation-keys.json store-secret; do
    if [ -e "$target/data/$name" ] && [ ! -e "$data/$name" ]; then
        echo "backup.sh: $data lacks $name, which $target/data has: nothing is copied. Put it back (deploy/STATE.md)," \
            "or move $target away to begin anew." >&2
        exit 1
    fi
done

mkdir -p "$target/audit"
for file in "$data"/audit.jsonl*; do
    whole=${file%.gz}
    # Copy each event once: while a file is being compressed, both names exist, and only the plain file is complete.
    if [ ! -e "$file" ] || { [ "$file" != "$whole" ] && [ -e "$whole" ]; }; then continue; fi
    cp -a --update "$file" "$target/audit/"
    if [ "$file" != "$whole" ]; then rm -f "$target/audit/${whole##*/}"; fi
done
if [ -n "$policies" ] && [ -e "$policies/stops.yaml" ]; then
    cp -a "$policies/stops.yaml" "$target/stops.next"
    mv "$target/stops.next" "$target/stops.yaml"
fi
rm -rf "$target/data.next"
mkdir "$target/data.next"
for name in inventory.json key-history.jsonl moved-to-log pats policies revocations.jsonl revocations.jwt revocation-keys.json store-secret; do
    if [ -e "$data/$name" ]; then cp -a "$data/$name" "$target/data.next/"; fi
done
if [ -e "$data/log/log.sqlite" ]; then
    issuer log export "$target/log" --from "$data/log/log.sqlite"
fi
# Remove the previous copy once the new one is complete.
sync -f "$target/data.next"
rm -rf "$target/data.before"
if [ -e "$target/data" ]; then mv "$target/data" "$target/data.before"; fi
mv "$target/data.next" "$target/data"
# `issuer doctor --server` and the alert IssuerBackupOld check the age of this file. The next run may replace it as any user.
: > "$data/.backed-up.next"
mv "$data/.backed-up.next" "$data/backed-up"
