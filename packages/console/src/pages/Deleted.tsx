import { notifications } from '@mantine/notifications';
import { useNavigate } from '@tanstack/react-router';
import { Archive } from 'lucide-react';
import { deletedCalls, type DeletedService } from '../api.ts';
import { ConfirmName } from '../components/ConfirmName.tsx';
import {
  Load,
  ActionButton,
  Ago,
  Card,
  Empty,
  Environment,
  PageHead,
  Until,
} from '../components/ui.tsx';
import { Rows } from '../components/Rows.tsx';
import { useCall } from '../components/use-call.tsx';
import { useDeleted } from '../live.ts';
import { useMe } from '../session.ts';
import { TYPE_NAMES, whyNotPurge, whyReadOnly } from '../status.ts';
import ui from './project.module.css';

export function Deleted() {
  return (
    <>
      <PageHead
        title="Deleted services"
        about={
          'A deleted service can be restored for a while, ' +
          'with its id, endpoint, data and password.'
        }
      />
      <Load query={useDeleted()}>
        {(deleted) => (
          <div className={ui.stack}>
            <Card flush>
              {deleted.length === 0 ? (
                <Empty icon={Archive} title="No deleted services">
                  A deleted service stays here for a day, or for HOWDAH_RESTORE_HOURS, before its
                  data is removed; and longer if a repository has its backups.
                </Empty>
              ) : (
                <Rows
                  rows={deleted}
                  idOf={({ service_id: id }) => id}
                  columns={[
                    {
                      title: 'Name',
                      show: ({ name, environment, service_id: id }) => (
                        <>
                          <strong className={ui.strong}>{name}</strong>{' '}
                          <Environment service={{ metadata: { environment } }} />
                          <div className={`mono ${ui.muted}`}>{id}</div>
                        </>
                      ),
                    },
                    { title: 'Type', show: ({ service_type: type }) => TYPE_NAMES[type] },
                    { title: 'Deleted', show: ({ deleted: at }) => <Ago iso={at} /> },
                    {
                      title: 'Restorable until',
                      show: ({ restorable_until: until, restore_at_risk: isAtRisk }) => (
                        <>
                          {until === undefined ? '–' : <Until iso={until} />}
                          {isAtRisk && <div className={ui.strong}>at risk, see below</div>}
                        </>
                      ),
                    },
                    {
                      title: 'From',
                      show: ({ repository }) =>
                        repository === undefined ? 'this machine' : `repository ${repository}`,
                    },
                    {
                      title: null,
                      show: (service) => (
                        <>
                          <Restore service={service} /> <Purge service={service} />
                        </>
                      ),
                    },
                  ]}
                />
              )}
            </Card>
            {notesOf(deleted).map((note) => (
              <p key={note} className={ui.muted}>
                That time ends {note}.
              </p>
            ))}
          </div>
        )}
      </Load>
    </>
  );
}

/** The reasons why the time for a restore may end early: the same for all services of a region. */
const notesOf = (deleted: readonly DeletedService[]): string[] => [
  ...new Set(deleted.flatMap(({ restore_note: note }) => note ?? [])),
];

/** Brings a deleted service back, and opens its page. */
function Restore({
  service: { service_id: id, created_by: createdBy },
}: {
  service: DeletedService;
}) {
  const me = useMe();
  const navigate = useNavigate();
  const restore = useCall(deletedCalls(me.project.id, id).restore, {
    onDone: () => void navigate({ to: '/services/$id', params: { id } }),
  });
  return (
    <ActionButton
      variant="default"
      size="xs"
      loading={restore.pending}
      why={whyReadOnly(me, createdBy)}
      onClick={() => restore.run()}
    >
      Restore
    </ActionButton>
  );
}

/** Removes a deleted service for good. */
function Purge({
  service: { service_id: id, name, created_by: createdBy },
}: {
  service: DeletedService;
}) {
  const me = useMe();
  return (
    <ConfirmName
      label="Purge…"
      title={`Purge ${name}`}
      submit="Purge the service"
      name={name}
      why={whyNotPurge(me, createdBy)}
      button={{ size: 'xs' }}
      call={() => deletedCalls(me.project.id, id).purge(name)}
      onDone={() => notifications.show({ message: `${name} is being purged`, color: 'teal' })}
    >
      Its data and backups on this machine are removed, and nobody can restore it. Its disk space is
      free soon after.
    </ConfirmName>
  );
}
