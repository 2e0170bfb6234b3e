// A test of somebody's project, for node:test.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Client } from 'pg';
import { databaseFor } from '@howdah/testing';

void test('rows of the service are there', async (t) => {
  const { url, leaseId } = await databaseFor(t);
  const client = new Client(url);
  await client.connect();
  const { rows } = await client.query('select count(*)::int from items');
  await client.end();
  assert.equal(rows[0].count, 100);
  t.diagnostic(`lease ${leaseId} has 100 rows`);
});
