/**
 * The scripts by which the double plays the Barman Cloud plugin, with the programs that it runs
 * itself. Its source: github.com/cloudnative-pg/plugin-barman-cloud, internal/cnpgi.
 */
import { COMMON } from './scripts.ts';

/** `STORE`: the options of a program up to its server. */
const STORE = `. /store/env
store="--cloud-provider aws-s3 --endpoint-url $ENDPOINT"
export PYTHONDONTWRITEBYTECODE=1
`;

/** The command of `archive_command`: Archive of common/wal.go. */
export const ARCHIVE = `set -eu
[ "$ARCHIVES" = yes ] || exit 0
${STORE}
exec barman-cloud-wal-archive --gzip $store "$DESTINATION" "$SERVER_NAME" "$1"
`;

/**
 * Makes the data of a moment, as the job full-recovery does: Restore of restore/restore.go. The
 * newest backup that ended before is taken: findClosestBackupFromTargetTime of barman-cloud,
 * pkg/catalog. The archive of the new server, if it has one, must be empty
 * (checkBackupDestination).
 */
export const RESTORE = `${COMMON}${STORE}
rm -rf "$data"
[ "$ARCHIVES" = no ] || [ "\${SKIP_EMPTY:-}" = enabled ] ||
  barman-cloud-check-wal-archive $store "$DESTINATION" "$SERVER_NAME"
backup=$(barman-cloud-backup-list --format json $store "$DESTINATION" "$ARCHIVE_SOURCE" |
  python3 -c '
import json, os, sys
from datetime import datetime
latest = "9999-12-31T00:00:00Z"
target = datetime.fromisoformat((os.environ.get("TARGET_TIME") or latest).replace("Z", "+00:00"))
done = [one for one in json.load(sys.stdin)["backups_list"] if one["status"] == "DONE"]
ends = [(datetime.fromisoformat(one["end_time_iso"]), one["backup_id"]) for one in done]
print(max(one for one in ends if one[0] <= target)[1])')
barman-cloud-restore $store "$DESTINATION" "$ARCHIVE_SOURCE" "$backup" "$data"
chmod 700 "$data"
move_wal
rm -rf "$data/log"
cat >"$data/double.conf" <<END
restore_command = 'barman-cloud-wal-restore $store $DESTINATION $ARCHIVE_SOURCE %f %p'
$([ -z "\${TARGET_TIME:-}" ] ||
  echo "recovery_target_time = '$(echo "$TARGET_TIME" | sed 's/Z$/+00/')'")
recovery_target_action = promote
hot_standby = off
END
touch "$data/recovery.signal"
pg_ctl --pgdata="$data" --wait --silent --timeout=600 \\
  --options="-c listen_addresses='' -c unix_socket_directories=/tmp" start
until [ "$(sql --tuples-only --no-align --dbname=postgres \\
  --command='select pg_is_in_recovery()' 2>/dev/null || true)" = f ]; do
  pg_ctl --pgdata="$data" status >/dev/null
  sleep 0.5
done
pg_ctl --pgdata="$data" --wait --silent --mode=fast stop
`;

/** Takes a base backup: Backup of instance/backup.go. */
export const BASE_BACKUP = `set -eu
${STORE}
barman-cloud-backup --gzip --immediate-checkpoint $store --host /tmp --user postgres \\
  "$DESTINATION" "$SERVER_NAME" >&2
`;

/** Removes what the retention does not need: maintenance of instance/retention.go. @param days */
export const removeOld = (days: number): string => `set -eu
${STORE}
barman-cloud-backup-delete --retention-policy "RECOVERY WINDOW OF ${days} DAYS" $store \\
  "$DESTINATION" "$SERVER_NAME" >&2
`;

/** Lists the backups, as JSON. */
export const LIST_BACKUPS = `set -eu
${STORE}
barman-cloud-backup-list --format json $store "$DESTINATION" "$SERVER_NAME"
`;
