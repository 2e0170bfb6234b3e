/** The major version of PostgreSQL of a service: upgrade, trial and undo. */
import { NativeSelect } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useState } from 'react';
import { serviceCalls, type Service } from '../../api.ts';
import { ConfirmName } from '../../components/ConfirmName.tsx';
import { ActionButton, Card } from '../../components/ui.tsx';
import { useCall } from '../../components/use-call.tsx';
import { fullTime } from '../../format.ts';
import { useNewerVersions } from '../../live.ts';
import { useMe } from '../../session.ts';
import { whyNot } from '../../status.ts';
import classes from './service.module.css';

const notify = (message: string) => () => notifications.show({ message, color: 'teal' });

/** Shown where the region has a newer version, or an upgrade can be undone. */
export function Upgrade({ service }: { service: Service }) {
  const newer = useNewerVersions(service);
  if (newer.length === 0 && service.upgraded === undefined) return null;
  return (
    <Card title="PostgreSQL version">
      <div className={classes.stack} style={{ gap: 12 }}>
        {newer.length > 0 && <ToNewer service={service} newer={newer} />}
        {service.upgraded !== undefined && <Undo service={service} upgraded={service.upgraded} />}
      </div>
    </Card>
  );
}

function ToNewer({
  service,
  newer,
}: {
  service: Service;
  newer: ReturnType<typeof useNewerVersions>;
}) {
  const me = useMe();
  const [chosen, setChosen] = useState('');
  const version = chosen === '' ? (newer[0]?.pg_version ?? '') : chosen;
  const calls = serviceCalls(me.project.id, service);
  const attempt = useCall(calls.upgrade, {
    onDone: notify('A copy is being upgraded: see Operations'),
  });
  const why = whyNot('upgrade', service, me);
  return (
    <>
      <p className={classes.hint}>
        Nobody can connect while the data is copied into the new version, which takes as long as a
        dump and a restore. A trial does that with a copy, and shows in Operations how long it took.
      </p>
      <div className={classes.row}>
        <NativeSelect
          aria-label="Newer version"
          value={version}
          onChange={(event) => setChosen(event.currentTarget.value)}
          data={newer.map(({ pg_version: major, version: full }) => ({
            value: major,
            label: full ?? major,
          }))}
        />
        <ActionButton
          variant="default"
          why={why}
          loading={attempt.pending}
          onClick={() => attempt.run({ pg_version: version, try: true })}
        >
          Try
        </ActionButton>
        <ConfirmName
          label="Upgrade…"
          title={`Upgrade ${service.name} to PostgreSQL ${version}`}
          submit="Upgrade the service"
          name={service.name}
          why={why}
          call={() => calls.upgrade({ pg_version: version, confirm: service.name })}
          onDone={notify(`${service.name} is being upgraded`)}
        >
          All its sessions end, and nobody can connect until the data is copied. The former data is
          kept for a while, and can be brought back. Points in time before the upgrade cannot be
          reached after it.
        </ConfirmName>
      </div>
    </>
  );
}

function Undo({
  service,
  upgraded: { from, at },
}: {
  service: Service;
  upgraded: NonNullable<Service['upgraded']>;
}) {
  const me = useMe();
  const calls = serviceCalls(me.project.id, service);
  return (
    <div className={`${classes.row} ${classes.between}`}>
      <p className={classes.hint}>
        Upgraded from PostgreSQL {from}, {fullTime(at)}. The former data is kept for a while.
      </p>
      <ConfirmName
        label="Undo…"
        title={`Undo the upgrade of ${service.name}`}
        submit="Undo the upgrade"
        name={service.name}
        why={whyNot('undoUpgrade', service, me)}
        call={() => calls.upgrade({ undo: true, confirm: service.name })}
        onDone={notify(`The upgrade of ${service.name} is being undone`)}
      >
        The data from before the upgrade comes back. What was written since then is lost. All
        sessions end.
      </ConfirmName>
    </div>
  );
}
