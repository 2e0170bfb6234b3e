import { uriOf } from '@howdah/contract/connect';
import { TRANSACTION_POOL_NAME } from '@howdah/contract/types';
import { Waypoints } from 'lucide-react';
import { passwordOf, serviceCalls } from '../../api.ts';
import { ActionButton, Card, Code, Empty } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { useThisService, useWhyImpossible } from '../../live.ts';
import { useMe } from '../../session.ts';
import { UNKNOWN_PASSWORD } from '../../snippets.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

export function Pooler() {
  const me = useMe();
  const service = useThisService();
  const missing = useWhyImpossible(service)('enablePooler');
  const calls = serviceCalls(me.project.id, service);
  const enable = useCall(calls.enablePooler);
  const disable = useCall(calls.disablePooler);
  const pooler = service.connection_pooler;
  if (pooler === undefined) {
    return (
      <Card>
        <Empty
          icon={Waypoints}
          title="No pooler yet"
          action={
            <ActionButton
              mt="xs"
              why={whyNot('enablePooler', service, me) ?? missing}
              loading={enable.pending}
              onClick={() => enable.run()}
            >
              Enable the pooler
            </ActionButton>
          }
        >
          {missing ??
            'PgBouncer shares a few server connections among many clients. ' +
              'It has its own port, and the same users and passwords.'}
        </Empty>
      </Card>
    );
  }
  const target = { ...pooler.endpoint, ca: null };
  const password = passwordOf(service.service_id) ?? UNKNOWN_PASSWORD;
  return (
    <div className={classes.stack}>
      <Card title="Pool by session" hint="works like a direct connection">
        <Code value={uriOf(target, password)} label="session pool URI" wrap />
      </Card>
      <Card
        title="Pool by transaction"
        hint={
          'for thousands of clients; no session state, ' +
          'and only protocol-level prepared statements'
        }
      >
        <Code
          value={uriOf({ ...target, database: TRANSACTION_POOL_NAME }, password)}
          label="transaction pool URI"
          wrap
        />
      </Card>
      <Card title="Disable">
        <div className={`${classes.row} ${classes.between}`}>
          <p className={classes.hint}>
            Its connections end. The port stays reserved for the pooler.
          </p>
          <ActionButton
            variant="default"
            why={whyNot('disablePooler', service, me)}
            loading={disable.pending}
            onClick={() => disable.run()}
          >
            Disable the pooler
          </ActionButton>
        </div>
      </Card>
    </div>
  );
}
