/**
 * Throws away rows of the metadata database that are kept no longer: by a timer, a thousand rows a
 * statement, never in a request. The tables, their caps and their indexes:
 * docs/metadata-database.md.
 */
import { pruneIncidents } from '../store/alerts.ts';
import { pruneMessages } from '../store/alert-messages.ts';
import { pruneAuditLog } from '../store/audit-log.ts';
import { pruneCertificates } from '../store/certificates.ts';
import { pruneTokens } from '../store/console.ts';
import type { Store } from '../store/database.ts';
import type { Db } from '../store/tables.ts';
import { pruneDeliveries, pruneEvents } from '../store/events.ts';
import { pruneAnswers } from '../store/kept-answers.ts';
import { pruneKeptLogs } from '../store/kept-logs.ts';
import { pruneKeys } from '../store/keys.ts';
import { pruneLogins } from '../store/logins.ts';
import { pruneOperations } from '../store/operations.ts';
import { pruneSamples } from '../store/samples.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';

/**
 * Prunes rows, by table. Entries of the audit log go after the operations that they name, keys
 * after the rows that name them.
 */
export const PRUNINGS: Record<string, (db: Db, historyMs: number) => Promise<boolean>> = {
  certificates: pruneCertificates,
  alert_incidents: pruneIncidents,
  alert_messages: pruneMessages,
  console_tokens: pruneTokens,
  kept_answers: pruneAnswers,
  kept_logs: pruneKeptLogs,
  login_requests: pruneLogins,
  deliveries: pruneDeliveries,
  events: pruneEvents,
  samples: pruneSamples,
  operations: pruneOperations,
  audit_log: pruneAuditLog,
  api_keys: pruneKeys,
};

/** @param keptMs how long operations that have ended and entries of the audit log are kept */
export function createHistory(store: Store, log: Log, rounds: Rounds, keptMs: number) {
  return rounds.every('history', async (closing) => {
    for (const [table, pruneSome] of Object.entries(PRUNINGS)) {
      try {
        while (!closing.aborted && (await pruneSome(store.db, keptMs)));
      } catch (error) {
        log.warn(
          { err: error, table },
          'old rows could not be deleted; trying again in ten minutes',
        );
      }
    }
  });
}
