import { expect, test } from 'vitest';
import { originBackupState, type BackupObject } from './state.ts';

const BACKUP: BackupObject = {
  metadata: {
    name: 's-fork123456-online',
    namespace: 'howdah-p',
    uid: 'u',
    resourceVersion: '1',
    creationTimestamp: '2026-11-27T10:00:00Z',
    annotations: { 'howdah.io/primary': 's-parent1234-1' },
  },
  status: {
    phase: 'completed',
    instanceID: { podName: 's-parent1234-1' },
    snapshotBackupStatus: { elements: [{ name: 's-fork123456-online', type: 'PG_DATA' }] },
  },
};

test('the backup for a fork is of the server that was the primary when it was asked for', () => {
  expect(originBackupState(BACKUP)).toMatchObject({ isTaken: true, problem: null });
  for (const instanceID of [{ podName: 's-parent1234-2' }, {}]) {
    const other = { ...BACKUP, status: { ...BACKUP.status, instanceID } };
    expect(originBackupState(other).problem).toBe('its primary has changed meanwhile');
  }
  const begun = { ...BACKUP, status: { phase: 'started' } };
  expect(originBackupState(begun)).toMatchObject({ isTaken: false, problem: null });
  const failed = { ...BACKUP, status: { phase: 'failed', error: 'no room' } };
  expect(originBackupState(failed).problem).toBe('no room');
});
