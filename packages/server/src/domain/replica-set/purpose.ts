/** The settings of nodes by the purpose of their read replica set. */
import type { SetPurpose } from '@howdah/contract';

/** How long a report may hold up the replay of a change that is in its way. */
const REPORT_DELAY = '10min';

/**
 * The settings in which nodes differ from other servers. All take effect at a reload ([PG] 19.6.3).
 *
 * With feedback, the primary keeps the rows that queries of the nodes see. Changes that lock a
 * table, as TRUNCATE and the end of VACUUM, still meet them: those wait for the delay. The primary
 * has to know of a query before it removes a row, so nodes report every second.
 */
export function settingsOfPurpose(purpose: SetPurpose): Record<string, string> {
  switch (purpose) {
    case 'reports':
      return {
        hot_standby_feedback: 'on',
        wal_receiver_status_interval: '1s',
        max_standby_streaming_delay: REPORT_DELAY,
        max_standby_archive_delay: REPORT_DELAY,
      };
    case 'lookups':
      return {};
  }
}
