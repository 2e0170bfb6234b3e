import { Modal } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { useNavigate } from '@tanstack/react-router';
import { Archive } from 'lucide-react';
import { serviceCalls, type DeletedService } from '../api.ts';
import { ConfirmName } from '../components/ConfirmName.tsx';
import { Load } from '../components/Load.tsx';
import { Rows } from '../components/Rows.tsx';
import { ActionButton, Ago, Card, Empty, Environment, PageHead, Until } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useDeleted } from '../live.ts';
import { useMe } from '../session.ts';
import { TYPE_NAMES, whyNotPurge, whyReadOnly } from '../status.ts';
import ui from './project.module.css';

export function Deleted() {
  const me = useMe();
  const { project } = me;
  const navigate = useNavigate();
  const restore = useCall(async (id: string) => {
    await serviceCalls(project.id, id).restore();
    await navigate({ to: '/services/$id', params: { id } });
  });
  return (
    <>
      <PageHead
        title="Deleted services"
        about="For a while they can be brought back, with their id, endpoint, data and password."
      />
      <Load query={useDeleted()}>
        {(deleted) => (
          <Card flush>
            {deleted.length === 0 ? (
              <Empty icon={Archive} title="Nothing was deleted lately">
                A service that you delete waits here for a day, or as long as HOWDAH_RESTORE_HOURS
                says, before its data is gone for good.
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
                    show: ({ restorable_until: until }) =>
                      until === undefined ? '–' : <Until iso={until} />,
                  },
                  {
                    title: null,
                    show: (service) => (
                      <>
                        <ActionButton
                          variant="default"
                          size="xs"
                          loading={restore.pending}
                          why={whyReadOnly(me, service.created_by)}
                          onClick={() => restore.run(service.service_id)}
                        >
                          Restore
                        </ActionButton>{' '}
                        <Purge service={service} />
                      </>
                    ),
                  },
                ]}
              />
            )}
          </Card>
        )}
      </Load>
    </>
  );
}

/** Removes a deleted service for good: the dialog asks for its name. */
function Purge({ service }: { service: DeletedService }) {
  const me = useMe();
  const [asking, { open, close }] = useDisclosure(false);
  const { name, created_by: createdBy } = service;
  return (
    <>
      <ActionButton variant="default" size="xs" why={whyNotPurge(me, createdBy)} onClick={open}>
        Purge…
      </ActionButton>
      <Modal
        opened={asking}
        onClose={close}
        title={`Remove ${name} for good`}
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <ConfirmPurge service={service} onDone={close} />
      </Modal>
    </>
  );
}

function ConfirmPurge({
  service: { service_id: id, name },
  onDone,
}: {
  service: DeletedService;
  onDone: () => void;
}) {
  const { project } = useMe();
  const purge = useCall(serviceCalls(project.id, id).purge, {
    quiet: true,
    onDone: () => {
      onDone();
      notifications.show({ message: `${name} is being removed`, color: 'teal' });
    },
  });
  return (
    <div className={ui.stack}>
      <p className={ui.muted}>
        Its data and backups are removed, and nobody can restore it. Its disk space is free soon
        after.
      </p>
      <ConfirmName
        name={name}
        call={purge}
        submit="Remove for good"
        onConfirm={() => purge.run(name)}
      />
    </div>
  );
}
